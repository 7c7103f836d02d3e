// What a closed form says about a candidate of a plan: less than it needs, and about how long it takes. From a few
// estimates on one GPU. Covered by tests/measured/plan_test.cc.
#pragma once

#include <array>
#include <optional>
#include <span>

#include "memcalc/plan/plan_space.h"
#include "memcalc/plan/search_control.h"

namespace memcalc {

/// Of one way to run the model; what a rank of many holds is a share of it.
struct ClosedForm {
  double weight_bytes = 0, gradient_bytes = 0, state_bytes = 0;
  std::array<double, 3> activation_bytes{};  // of a sequence, by Checkpointing: a lower bound
  double forward_backward_flops = 0;         // of a sequence
  double forward_flops = 0;
  double launch_seconds = 0;  // of a micro-batch, however small: what the host takes to issue its kernels
};

/// The ways differ in what they hold of a sequence: autocast, FSDP2's bfloat16, Megatron's operators.
struct ClosedForms {
  std::array<std::optional<ClosedForm>, kWayCount> by_way;  // nothing: the library refuses the run so
  std::array<std::string, kWayCount> refusals;              // and the rule that is broken
  [[nodiscard]] const ClosedForm* of(const Choice& choice) const {
    const auto& form = by_way[static_cast<std::size_t>(choice.way)];
    return form ? &*form : nullptr;
  }
};

/// Of the ways of these choices. Throws what estimate() throws for the run as it is asked, on one GPU with the smallest
/// batch.
[[nodiscard]] ClosedForms closed_forms_of(const PlanQuestion& question, std::span<const Choice> choices,
                                          const SearchControl& control = {});

/// Less than any rank needs that holds most: its share of weights, gradients, states, and activations of a micro-batch.
[[nodiscard]] double least_bytes(const ClosedForm& form, const PlanQuestion& question, const Choice& choice);

/// About what it needs, in order to look at the promising first: no bound.
[[nodiscard]] double likely_bytes(const ClosedForm& form, const PlanQuestion& question, const Choice& choice);

/// PlanEntry::ranking_seconds.
[[nodiscard]] double ranking_seconds(const ClosedForm& form, const PlanQuestion& question, const Choice& choice);

}  // namespace memcalc
