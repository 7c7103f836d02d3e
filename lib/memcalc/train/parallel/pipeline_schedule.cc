#include "memcalc/train/parallel/pipeline_schedule.h"

#include <algorithm>

namespace memcalc {

namespace {

using Steps = std::vector<PipelineStep>;

PipelineStep step(PipelineAction action, std::int64_t chunk, std::int64_t micro_batch) {
  return {action, static_cast<std::int32_t>(chunk), static_cast<std::int32_t>(micro_batch)};
}

/// Schedule GPipe: every forward, then every backward.
Steps gpipe(const Pipeline& pipeline) {
  Steps steps;
  for (std::int64_t m = 0; m < pipeline.micro_batches; ++m) steps.push_back(step(PipelineAction::kForward, 0, m));
  for (std::int64_t m = 0; m < pipeline.micro_batches; ++m) steps.push_back(step(PipelineAction::kBackward, 0, m));
  return steps;
}

/// forward_backward_pipelining_without_interleaving: warm-up, then one forward and one backward in turn.
Steps one_forward_one_backward(const Pipeline& pipeline, std::int64_t stage) {
  Steps steps;
  const std::int64_t warm_up = std::min(pipeline.stages - stage - 1, pipeline.micro_batches);
  for (std::int64_t m = 0; m < warm_up; ++m) steps.push_back(step(PipelineAction::kForward, 0, m));
  for (std::int64_t m = warm_up; m < pipeline.micro_batches; ++m) {
    steps.push_back(step(PipelineAction::kForward, 0, m));
    steps.push_back(step(PipelineAction::kBackward, 0, m - warm_up));
  }
  for (std::int64_t m = pipeline.micro_batches - warm_up; m < pipeline.micro_batches; ++m) {
    steps.push_back(step(PipelineAction::kBackward, 0, m));
  }
  return steps;
}

/// Micro-batches that pass through a chunk in a row: as many as there are stages, where nothing else is asked for.
std::int64_t group_of(const Pipeline& pipeline) {
  return std::min(pipeline.group > 0 ? pipeline.group : pipeline.stages, pipeline.micro_batches);
}

/// The k-th forward or backward of an interleaved stage (schedules.py, get_schedule_table): groups of micro-batches
/// pass through all chunks in turn.
PipelineStep interleaved_step(const Pipeline& pipeline, PipelineAction action, std::int64_t k) {
  const std::int64_t group = group_of(pipeline);
  const std::int64_t round = group * pipeline.chunks;
  const std::int64_t first = k / round * group;
  const std::int64_t in_group = std::min(group, pipeline.micro_batches - first);  // the last group may be smaller
  const std::int64_t place = k % round;
  const std::int64_t chunk = place / in_group;
  return step(action, action == PipelineAction::kForward ? chunk : pipeline.chunks - 1 - chunk,
              first + place % in_group);
}

/// forward_backward_pipelining_with_interleaving.
Steps interleaved(const Pipeline& pipeline, std::int64_t stage) {
  Steps steps;
  const std::int64_t total = pipeline.micro_batches * pipeline.chunks;
  const std::int64_t group = group_of(pipeline);
  // get_pp_rank_microbatches
  const std::int64_t warm_up = std::min(2 * (pipeline.stages - stage - 1) + (pipeline.chunks - 1) * group, total);
  for (std::int64_t k = 0; k < warm_up; ++k) steps.push_back(interleaved_step(pipeline, PipelineAction::kForward, k));
  for (std::int64_t k = warm_up; k < total; ++k) {
    steps.push_back(interleaved_step(pipeline, PipelineAction::kForward, k));
    steps.push_back(interleaved_step(pipeline, PipelineAction::kBackward, k - warm_up));
  }
  for (std::int64_t k = total - warm_up; k < total; ++k) {
    steps.push_back(interleaved_step(pipeline, PipelineAction::kBackward, k));
  }
  return steps;
}

/// ZB-H1 (Qi et al., arXiv 2401.10241, section 2.2): only the input's gradient is computed at once; the weights'
/// follows a stage's number of backwards later, in what would be idle time. Of several chunks: torch's
/// ScheduleInterleavedZeroBubble (schedules.py, _calculate_single_rank_operations).
Steps zero_bubble(const Pipeline& pipeline, std::int64_t stage) {
  Steps steps;
  const std::int64_t total = pipeline.micro_batches * pipeline.chunks;
  const std::int64_t group = group_of(pipeline);
  const std::int64_t warm_up = std::min(pipeline.stages - stage - 1 + (pipeline.chunks - 1) * group, total);
  std::int64_t weights_done = 0;
  const auto backward = [&](std::int64_t k) {
    steps.push_back(interleaved_step(pipeline, PipelineAction::kInputBackward, k));
    // Stage p puts off p weight gradients: together with its P - p micro-batches in flight as many as 1F1B's first.
    if (k >= stage) steps.push_back(interleaved_step(pipeline, PipelineAction::kWeightBackward, weights_done++));
  };
  for (std::int64_t k = 0; k < warm_up; ++k) steps.push_back(interleaved_step(pipeline, PipelineAction::kForward, k));
  for (std::int64_t k = warm_up; k < total; ++k) {
    steps.push_back(interleaved_step(pipeline, PipelineAction::kForward, k));
    backward(k - warm_up);
  }
  for (std::int64_t k = total - warm_up; k < total; ++k) backward(k);
  while (weights_done < total) {
    steps.push_back(interleaved_step(pipeline, PipelineAction::kWeightBackward, weights_done++));
  }
  return steps;
}

}  // namespace

Pipeline pipeline_of(const Parallel& parallel, std::int64_t accumulation_steps) {
  Pipeline pipeline{parallel.schedule, parallel.pipeline, parallel.virtual_stages, parallel.micro_batches,
                    parallel.megatron.micro_batch_group};
  if (pipeline.stages == 1 && pipeline.micro_batches == 0) pipeline.micro_batches = accumulation_steps;
  if (pipeline.micro_batches == 0) pipeline.micro_batches = pipeline.stages;
  return pipeline;
}

std::vector<PipelineStep> pipeline_steps(const Pipeline& pipeline, std::int64_t stage) {
  if (pipeline.chunks > 1 && pipeline.schedule != PipelineSchedule::kZeroBubble) return interleaved(pipeline, stage);
  switch (pipeline.schedule) {
    case PipelineSchedule::kGpipe: return gpipe(pipeline);
    case PipelineSchedule::kZeroBubble: return zero_bubble(pipeline, stage);
    case PipelineSchedule::kInterleaved:
    case PipelineSchedule::kOneForwardOneBackward: break;
  }
  return one_forward_one_backward(pipeline, stage);
}

std::int64_t most_in_flight(const Pipeline& pipeline, std::int64_t stage) {
  std::int64_t now = 0, most = 0;
  for (const PipelineStep& each : pipeline_steps(pipeline, stage)) {
    if (each.action == PipelineAction::kForward) most = std::max(most, ++now);
    if (each.action == PipelineAction::kBackward || each.action == PipelineAction::kInputBackward) --now;
  }
  return most;
}

Pipeline shortened(const Pipeline& pipeline) {
  Pipeline result = pipeline;
  if (pipeline.schedule == PipelineSchedule::kGpipe && pipeline.chunks == 1 && pipeline.stages > 1) return result;
  // The first stage has the most in flight: P micro-batches, or 2 (P - 1) + (V - 1) G + 1 of one chunk, for which two
  // groups of G, at least P, are enough.
  const std::int64_t group = group_of(pipeline);
  const std::int64_t rounds = pipeline.chunks > 1 ? 2 * group : pipeline.stages + 2;
  const std::int64_t multiple = pipeline.chunks > 1 ? group : 1;
  if (rounds < pipeline.micro_batches && (pipeline.micro_batches - rounds) % multiple == 0)
    result.micro_batches = rounds;
  return result;
}

}  // namespace memcalc
