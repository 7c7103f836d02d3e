// The stages of a job: loading, preparing, training, evaluating, merging, saving; what each takes of the card and of
// the host. Covered by tests/unit/model_saving_test.cc and tests/measured/stages_test.py.
#pragma once

#include <vector>

#include "memcalc/report/report.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// In the order in which they happen; empty where not all stages count.
[[nodiscard]] std::vector<StageRow> stages_of(const SymbolicRun& symbolic, const RunSpec& run,
                                              const ReplayResult& memory);

}  // namespace memcalc
