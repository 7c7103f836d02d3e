// The space of a plan: every combination of layout, sharding, checkpointing, offload, micro-batch and schedule, as
// small values, and what a closed form says about each.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/plan/plan.h"

namespace memcalc {

/// One candidate; run_of() makes a RunSpec of it.
struct Choice {
  std::int32_t tensor = 1, context = 1, pipeline = 1, expert = 1;
  std::int32_t micro_batch = 1;
  std::int32_t virtual_stages = 1;
  std::int32_t checkpoint_every = 1;
  DataParallel data_parallel = DataParallel::kNone;
  PipelineSchedule schedule = PipelineSchedule::kOneForwardOneBackward;
  Checkpointing checkpointing = Checkpointing::kNone;
  bool reshard = true;
  bool offload_activations = false;
  bool offload_states = false;
};

/// All of them, in a fixed order.
[[nodiscard]] std::vector<Choice> choices_of(const PlanQuestion& question);

/// Micro-batches that a replica runs in one step; 0: the global batch cannot be divided so.
[[nodiscard]] std::int64_t micro_batches_of(const PlanQuestion& question, const Choice& choice);

/// Why a candidate makes no sense, whatever the library models; null otherwise.
[[nodiscard]] const char* contradiction_in(const PlanQuestion& question, const Choice& choice);

[[nodiscard]] RunSpec run_of(const PlanQuestion& question, const Choice& choice);

/// What the closed form knows of a model, from a few estimates on one GPU.
struct ClosedForm {
  double weight_bytes = 0, gradient_bytes = 0, state_bytes = 0;
  std::array<double, 3> activation_bytes{};  // of a sequence, by Checkpointing: a lower bound
  double forward_backward_flops = 0;         // of a sequence
  double forward_flops = 0;
};

[[nodiscard]] ClosedForm closed_form_of(const PlanQuestion& question);

/// Less than any rank needs that holds most: its share of weights, gradients, states, and activations of a micro-batch.
[[nodiscard]] double least_bytes(const ClosedForm& form, const PlanQuestion& question, const Choice& choice);

/// PlanEntry::ranking_seconds.
[[nodiscard]] double ranking_seconds(const ClosedForm& form, const PlanQuestion& question, const Choice& choice);

}  // namespace memcalc
