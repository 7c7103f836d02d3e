// Which weights of a quantised model are packed and which are not, in a line or two.
// Covered by tests/unit/native_formats_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// Nothing for a run whose weights are not quantised, and for a model without experts whose base bitsandbytes packs.
[[nodiscard]] std::vector<std::string> notes_on_packed_weights(const SymbolicRun& symbolic, const ModelSpec& model,
                                                               const RunSpec& run, const DeviceSpec& device);

}  // namespace memcalc
