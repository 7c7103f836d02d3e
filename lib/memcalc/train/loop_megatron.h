// A training step of Megatron-LM on one rank: its model chunks, the pipeline schedule, the optimizer.
#pragma once

#include "memcalc/train/ranks.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// As run_symbolically(), for --framework megatron. `rank`: of run.parallel.gpus.
[[nodiscard]] SymbolicRun run_megatron(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device,
                                       std::int64_t rank);

/// The stages of a pipeline. Of many, those that hold the same as the one before them but fewer micro-batches are one
/// group: the first of them is the largest.
[[nodiscard]] std::vector<RankGroup> megatron_ranks(const ModelSpec& model, const RunSpec& run);

/// The pipeline stage of a rank: the outermost dimension (parallel_state.py, order tp-cp-ep-dp-pp).
[[nodiscard]] std::int64_t pipeline_stage(const Parallel& parallel, std::int64_t rank);

}  // namespace memcalc
