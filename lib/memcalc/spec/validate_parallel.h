// Whether a run can be split over GPUs as asked. Part of resolve() and of validate().
// Covered by tests/unit/parallel_options_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Whose the mode is; of those that no framework calls its own, torch's.
[[nodiscard]] Framework framework_of(DataParallel mode);

/// Fills what was left out: the GPUs, the data-parallel mode of the ranks that see different data, the framework.
/// Throws Error(kUsage) where GPUs and sizes contradict each other.
[[nodiscard]] Parallel resolve_parallel(Parallel asked, std::optional<std::int64_t> gpus,
                                        std::optional<Framework> framework, std::vector<std::string>& assumptions);

/// Ranks that see different data: gpus / (tp x cp x pp).
[[nodiscard]] std::int64_t data_parallel_size(const Parallel& parallel);

/// Ranks that share parameters, gradients and optimizer states: those that see different data or, under torch's context
/// parallelism, different parts of a sequence.
[[nodiscard]] std::int64_t sharing_ranks(const Parallel& parallel);

/// Throws Error(kUsage) for sizes that cannot be, and for combinations that the framework refuses or that are not
/// modelled.
void check_parallel(const ModelSpec& model, const RunSpec& run);

}  // namespace memcalc
