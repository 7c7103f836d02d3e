// Assembles the Report from the results of the stages; decides nothing that a stage has decided.
// Covered by tests/unit/assemble_test.cc.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/alloc/replay.h"
#include "memcalc/report/report.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/trace.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// "MmBackward0>aten::mm", "aten::gelu", "MmBackward0" or, where a Python variable died, "".
[[nodiscard]] std::string chain_of(const Event& event);

/// The blocks alive just after `event_index`, one row per operator, category and size; the largest total first.
[[nodiscard]] std::vector<PeakContributor> contributors_at(const Trace& trace, std::size_t event_index);

/// Why a call of a model that does not train has no time though the card's rates are known; empty where it has.
[[nodiscard]] std::string_view untimed_call(const RunSpec& run);

/// Pre: `memory` is the replay of `symbolic.trace`.
[[nodiscard]] Report assemble(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device,
                              const SymbolicRun& symbolic, ReplayResult memory,
                              const std::optional<StepTime>& time = std::nullopt);

}  // namespace memcalc
