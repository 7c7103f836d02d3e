// A training step of Megatron-LM on one rank: its model chunks, the pipeline schedule, the optimizer.
#pragma once

#include "memcalc/spec/megatron_spec.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// As run_symbolically(), for --framework megatron. `rank`: of run.parallel.gpus.
[[nodiscard]] SymbolicRun run_megatron(const ModelSpec& model, const RunSpec& run, const MegatronOptions& options,
                                       const DeviceSpec& device, std::int64_t rank);

/// The pipeline stage of a rank: the outermost dimension (parallel_state.py, order tp-cp-ep-dp-pp).
[[nodiscard]] std::int64_t pipeline_stage(const Parallel& parallel, std::int64_t rank);

}  // namespace memcalc
