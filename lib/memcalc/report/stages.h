// The stages of a job: loading, preparing, training, evaluating, merging, saving; what each takes of the card and of
// the host. Covered by tests/unit/model_saving_test.cc and tests/measured/stages_test.py.
#pragma once

#include <optional>
#include <vector>

#include "memcalc/report/report.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// In the order in which they happen; empty where not all stages count. `checkpoint_dtype`: of the files; absent: as
/// the weights are loaded.
[[nodiscard]] std::vector<StageRow> stages_of(const SymbolicRun& symbolic, const RunSpec& run,
                                              const ReplayResult& memory, std::optional<DType> checkpoint_dtype);

/// That share the memory of one host.
[[nodiscard]] std::int64_t ranks_on_host(const RunSpec& run);

/// What the host holds in the stage that takes the most of it; nothing where the host's memory is not known or the run
/// takes none. `steps`: of one rank.
[[nodiscard]] std::optional<HostFit> host_fit_of(const HostMemory& steps, const std::vector<StageRow>& stages,
                                                 const RunSpec& run, const HostSize& host);

}  // namespace memcalc
