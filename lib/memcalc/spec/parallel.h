// How the GPUs of a run are shared out: which ranks hold the same, which see different data, and what of it follows
// from the rest. What of it cannot be is a row of rules_sizes.cc. Covered by tests/unit/parallel_options_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/spec/parallel_spec.h"

namespace memcalc {

struct ModelSpec;
struct RunOptions;

/// Whose the mode is; of those that no framework calls its own, torch's.
[[nodiscard]] Framework framework_of(DataParallel mode);

/// Ranks that together hold one copy of the model: tp x cp x pp, under torch times ep (its expert-parallel ranks see
/// the same data, Megatron's are among those that see different data).
[[nodiscard]] std::int64_t model_ranks(const Parallel& parallel);

/// "tp 4 x pp 2 = 8"
[[nodiscard]] std::string product_of(const Parallel& parallel);

/// Ranks that see different data: gpus / model_ranks().
[[nodiscard]] std::int64_t data_parallel_size(const Parallel& parallel);

/// Ranks that share parameters, gradients and optimizer states: those that see different data or, under torch's context
/// parallelism, different parts of a sequence.
[[nodiscard]] std::int64_t sharing_ranks(const Parallel& parallel);

/// Of a pipeline's step; as many as it has stages where nobody said how many.
[[nodiscard]] std::int64_t micro_batches_of(const Parallel& parallel);

/// What was asked for, else whose the data-parallel mode is.
[[nodiscard]] Framework framework_asked(const RunOptions& options);

/// Fills what was left out: the GPUs, the data-parallel mode of the ranks that see different data, the framework, whose
/// options become the layout. Throws Error(kUsage) where `none` was asked for and copies of the model would then share
/// nothing, and where DeepSpeed was configured and is not the framework.
[[nodiscard]] Parallel resolve_parallel(const RunOptions& options, std::vector<std::string>& assumptions);

/// Of DeepSpeed's sizes those that were left out.
void resolve_zero_sizes(const ModelSpec& model, const DeepSpeedSizes& asked, bool in_trainer, Parallel& parallel,
                        std::vector<std::string>& assumptions);

}  // namespace memcalc
