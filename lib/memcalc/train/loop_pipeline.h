// torch.distributed.pipelining (PyTorch 2.11): one rank of a pipeline in a plain loop.
//   schedule = Schedule1F1B(PipelineStage(stage, …), micro_batches, loss_fn); schedule.step(ids, target=labels)
// Covered by tests/measured/parallel_rows_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/models/pipeline_stages.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/train/ranks.h"

namespace memcalc {

/// The stages of a rank: every pp-th, as many as --virtual-stages says; in a V one from each end.
[[nodiscard]] std::vector<ModelStage> stages_of_rank(const Parallel& parallel, std::int64_t layers, std::int64_t rank);

/// One group a stage; of more than eight, stages that hold alike modules are one group, told by its first.
[[nodiscard]] std::vector<RankGroup> pipeline_ranks(const ModelSpec& model, const RunSpec& run);

/// Of the whole model, and of the wrappers around a rank's stages.
struct WrappedStages {
  std::int64_t parameters_of_model = 0;
  std::int64_t trainable_of_model = 0;
  std::vector<Shape> whole_shapes;  // of the model's parameters, where they were replaced
  std::vector<std::string> assumptions;
};

/// The rank keeps its stages of `model` and trains them, each with what other ranks that run the same one need around
/// it. Throws Error(kUnsupported) for a family that cannot be cut.
[[nodiscard]] WrappedStages run_pipeline_loop(Tape& tape, Model& model, const ModelSpec& spec, const RunSpec& run,
                                              std::int64_t rank);

/// What is taken for granted of such a run.
[[nodiscard]] std::vector<std::string> pipeline_assumptions(const RunSpec& run);

/// The model with an output layer of its own: a weight that two stages share becomes two.
[[nodiscard]] ModelSpec untied(ModelSpec model);

/// Of the decoder layers. Throws Error(kUnsupported) for a family without any.
[[nodiscard]] std::int64_t layers_of(const ModelSpec& model);

}  // namespace memcalc
