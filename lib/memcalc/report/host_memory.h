// Host memory of a run: pinned copies of what autograd saves, and the batches of the data loader.
#pragma once

#include "memcalc/report/report.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/train/step.h"

namespace memcalc {

[[nodiscard]] HostMemory host_memory_of(const SymbolicRun& symbolic, const RunSpec& run);

}  // namespace memcalc
