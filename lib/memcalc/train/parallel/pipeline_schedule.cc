// MIRRORS(torch, "distributed/pipelining/schedules.py", "2.11.0")
#include "memcalc/train/parallel/pipeline_schedule.h"

#include <algorithm>
#include <set>

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
  // get_pp_rank_microbatches
  const std::int64_t warm_up =
      std::min(2 * (pipeline.stages - stage - 1) + (pipeline.chunks - 1) * group_of(pipeline), total);
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
  const std::int64_t warm_up =
      std::min(pipeline.stages - stage - 1 + (pipeline.chunks - 1) * group_of(pipeline), total);
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

/// torch's ScheduleZBVZeroBubble (schedules.py; Qi et al., section 6): stage p of P holds the chunks p and 2 P - 1 - p.
/// It counts as if there were 2 P - 1 micro-batches at least; those that do not exist are left out.
Steps zero_bubble_v(const Pipeline& pipeline, std::int64_t stage) {
  constexpr std::int64_t kChunks = 2;
  Steps steps;
  const std::int64_t counted = std::max(2 * pipeline.stages - 1, pipeline.micro_batches);
  std::int64_t forwards[kChunks]{}, inputs[kChunks]{}, weights[kChunks]{};
  const auto add = [&](PipelineAction action, std::int64_t chunk, std::int64_t micro_batch) {
    if (micro_batch < pipeline.micro_batches) steps.push_back(step(action, chunk, micro_batch));
  };
  const auto forward = [&](std::int64_t chunk) { add(PipelineAction::kForward, chunk, forwards[chunk]++); };
  const auto input = [&](std::int64_t chunk) { add(PipelineAction::kInputBackward, chunk, inputs[chunk]++); };
  const auto weight = [&](std::int64_t chunk) { add(PipelineAction::kWeightBackward, chunk, weights[chunk]++); };
  const auto backward = [&](std::int64_t chunk) {
    input(chunk);
    weight(chunk);
  };
  for (std::int64_t i = 0; i < 2 * (pipeline.stages - stage) - 1; ++i) forward(0);
  for (std::int64_t i = 0; i < stage; ++i) {
    forward(1);
    forward(0);
  }
  for (std::int64_t i = stage; i < pipeline.stages; ++i) {
    forward(1);
    backward(1);
  }
  while (forwards[1] < forwards[0] || forwards[0] < counted) {
    if (forwards[0] < counted) forward(0);
    backward(0);
    forward(1);
    backward(1);
  }
  for (std::int64_t i = 0; i < stage; ++i) {
    input(0);
    input(1);
  }
  for (std::int64_t i = stage; i < pipeline.stages; ++i) backward(0);
  while (weights[1] < inputs[1]) weight(1);
  while (weights[0] < inputs[0]) weight(0);
  return steps;
}

/// _add_unshard_reshard: the chunks that the next steps need are gathered ahead, three at most, the others let go.
Steps with_gathered_chunks(const Steps& steps, std::int64_t chunks) {
  constexpr std::size_t kMostActive = 3;
  const std::size_t most = std::min(kMostActive, static_cast<std::size_t>(chunks));
  Steps result;
  std::set<std::int32_t> active;
  for (auto now = steps.begin(); now != steps.end(); ++now) {
    std::vector<std::int32_t> next;
    for (auto each = now; each != steps.end() && next.size() < most; ++each) {
      if (std::find(next.begin(), next.end(), each->chunk) == next.end()) next.push_back(each->chunk);
    }
    for (auto each = active.begin(); each != active.end();) {
      if (std::find(next.begin(), next.end(), *each) != next.end()) {
        ++each;
        continue;
      }
      result.push_back(step(PipelineAction::kReshard, *each, 0));
      each = active.erase(each);
    }
    for (const std::int32_t chunk : next) {
      if (active.insert(chunk).second) result.push_back(step(PipelineAction::kUnshard, chunk, 0));
    }
    result.push_back(*now);
  }
  for (const std::int32_t chunk : active) result.push_back(step(PipelineAction::kReshard, chunk, 0));
  return result;
}

/// _add_reduce_grad: right behind a chunk's last backward.
Steps with_reductions(const Steps& steps, const Pipeline& pipeline) {
  Steps result;
  std::vector<std::int64_t> done(static_cast<std::size_t>(pipeline.chunks));
  for (const PipelineStep& each : steps) {
    result.push_back(each);
    if (each.action != PipelineAction::kBackward && each.action != PipelineAction::kWeightBackward) continue;
    if (++done[static_cast<std::size_t>(each.chunk)] < pipeline.micro_batches) continue;
    result.push_back(step(PipelineAction::kReduceGradients, each.chunk, 0));
  }
  return result;
}

}  // namespace

Pipeline pipeline_of(const Parallel& parallel, std::int64_t accumulation_steps) {
  Pipeline pipeline{parallel.schedule, parallel.pipeline, parallel.virtual_stages, parallel.micro_batches};
  if (pipeline.stages == 1 && pipeline.micro_batches == 0) pipeline.micro_batches = accumulation_steps;
  if (pipeline.micro_batches == 0) pipeline.micro_batches = pipeline.stages;
  const auto* megatron = std::get_if<MegatronLayout>(&parallel.layout);
  pipeline.group = megatron != nullptr ? megatron->micro_batch_group : pipeline.micro_batches / rounds_of(pipeline);
  return pipeline;
}

std::int64_t rounds_of(const Pipeline& pipeline) {
  return std::max<std::int64_t>(1, pipeline.micro_batches / pipeline.stages);
}

bool runs_in_actions(const Pipeline& pipeline) {
  return pipeline.chunks > 1 || pipeline.schedule == PipelineSchedule::kZeroBubble;
}

std::vector<PipelineStep> pipeline_steps(const Pipeline& pipeline, std::int64_t stage) {
  switch (pipeline.schedule) {
    case PipelineSchedule::kZeroBubble: return zero_bubble(pipeline, stage);
    case PipelineSchedule::kZeroBubbleV: return zero_bubble_v(pipeline, stage);
    default: break;
  }
  if (pipeline.chunks > 1) return interleaved(pipeline, stage);
  return pipeline.schedule == PipelineSchedule::kGpipe ? gpipe(pipeline) : one_forward_one_backward(pipeline, stage);
}

std::vector<PipelineStep> pipeline_actions(const Pipeline& pipeline, std::int64_t stage) {
  return with_reductions(with_gathered_chunks(pipeline_steps(pipeline, stage), pipeline.chunks), pipeline);
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
