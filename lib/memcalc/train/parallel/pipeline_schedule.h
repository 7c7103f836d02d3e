// Which micro-batch a pipeline stage runs forward or backward, and when: the schedules of Megatron-core
// (pipeline_parallel/schedules.py) and of torch.distributed.pipelining (schedules.py), which agree on them.
// Covered by tests/unit/pipeline_schedule_test.cc.
// MIRRORS(torch, "distributed/pipelining/schedules.py", "2.11.0")
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/parallel_spec.h"

namespace memcalc {

/// kInputBackward and kWeightBackward: the two halves into which zero bubble splits a backward (torch's stage_backward_
/// input and stage_backward_weight). The rest is of a whole chunk: FSDP2's parameters are gathered and let go,
/// gradients of all micro-batches reduced (torch's UNSHARD, RESHARD and REDUCE_GRAD).
enum class PipelineAction : std::uint8_t {
  kForward,
  kBackward,
  kInputBackward,
  kWeightBackward,
  kUnshard,
  kReshard,
  kReduceGradients,
};

struct PipelineStep {
  PipelineAction action = PipelineAction::kForward;
  std::int32_t chunk = 0;        // of this stage's model chunks
  std::int32_t micro_batch = 0;  // from 0; of no meaning for a whole chunk

  [[nodiscard]] bool operator==(const PipelineStep&) const = default;
};

struct Pipeline {
  PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward;
  std::int64_t stages = 1;
  std::int64_t chunks = 1;  // per stage
  std::int64_t micro_batches = 1;
  std::int64_t group = 0;  // that pass through a chunk in a row; 0: as many as stages
};

/// What a run asks for, micro_batches filled in: gradient accumulation where there is one stage.
[[nodiscard]] Pipeline pipeline_of(const Parallel& parallel, std::int64_t accumulation_steps);

/// number_of_rounds of torch's schedules of several stages a rank, which take micro-batches that it divides.
[[nodiscard]] std::int64_t rounds_of(const Pipeline& pipeline);

/// One optimizer step of `stage`, in order.
[[nodiscard]] std::vector<PipelineStep> pipeline_steps(const Pipeline& pipeline, std::int64_t stage);

/// Whether it is one of torch's _PipelineScheduleRuntime, which runs pipeline_actions(); the others know of no shards.
[[nodiscard]] bool runs_in_actions(const Pipeline& pipeline);

/// The steps with what is done to whole chunks between them.
[[nodiscard]] std::vector<PipelineStep> pipeline_actions(const Pipeline& pipeline, std::int64_t stage);

/// The most chunk-micro-batches that have run forward and not backward at one time.
[[nodiscard]] std::int64_t most_in_flight(const Pipeline& pipeline, std::int64_t stage);

/// A pipeline with so few micro-batches that every stage reaches its most in flight and runs a round beyond it; what
/// follows repeats.
[[nodiscard]] Pipeline shortened(const Pipeline& pipeline);

}  // namespace memcalc
