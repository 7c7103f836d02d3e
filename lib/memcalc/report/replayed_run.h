// A rank of a run and what the allocator makes of it: the first half of every estimate, curve and trace.
// Covered by tests/unit/estimate_test.cc.
#pragma once

#include <cstdint>

#include "memcalc/alloc/replay.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/train/step.h"

namespace memcalc {

struct ReplayedRun {
  SymbolicRun symbolic;
  ReplayResult memory;  // of symbolic.trace
};

/// Pre: the run is valid (validate). `record_timeline`: fills memory.timeline.
[[nodiscard]] ReplayedRun replayed_run(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device,
                                       std::int64_t rank = 0, bool record_timeline = false);

}  // namespace memcalc
