// MIRRORS(torch, "native/TensorCompare.cpp", "2.11.0")
// MIRRORS(trl, "trainer/grpo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/rloo_trainer.py", "1.16.0")
#include "memcalc/train/trl/rewards.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/nan_to_num.h"
#include "memcalc/symbolic/ops/nanmean.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/gather.h"

namespace memcalc {

namespace {

constexpr unsigned kOfGroup = 0b10;  // of [groups, generations]

unsigned all_dimensions(const Tensor& x) { return (1U << x.rank()) - 1; }

Tensor in_groups(const Tensor& x, std::int64_t generations) {
  const std::int64_t completions = x.size(0);
  // Where the number of a prompt's completions is not told, all are one prompt's.
  const bool told = generations > 0 && completions % generations == 0;
  return view(x, told ? Shape{completions / generations, generations} : Shape{1, completions});
}

Tensor deviations_of(const Tensor& groups) { return view(no_grad::nanstd(groups, kOfGroup), {groups.size(0)}); }

/// (rewards_per_func * reward_weights.to(device).unsqueeze(0)).nansum(dim=1); what cannot be scored is filled in place.
Tensor weighted_sum(const Tensor& of_functions) {
  const Tensor products =
      no_grad::multiply(of_functions, no_grad::from_list(of_functions.tape(), {1, 1}, DType::kFloat32));
  return no_grad::nansum(products, 0b10, false);
}

/// torch.isclose(x, torch.zeros_like(x))
Tensor is_close_to_zero(const Tensor& x) {
  const Tensor zeros = no_grad::zeros_like(x);
  Tensor close = no_grad::equal(x, zeros);
  const Tensor allowed = [&] {  // atol + (rtol * other).abs(), whose temporaries live as long as the sum is made
    const Tensor product = no_grad::multiply(zeros), magnitude = no_grad::absolute(product);
    return no_grad::add(magnitude);
  }();
  const Tensor actual = no_grad::absolute(no_grad::subtract(x, zeros));
  const Tensor finite = no_grad::isfinite(actual);
  no_grad::less_equal(actual, allowed).reset();  // joined in place
  return close;
}

void look_at_number(Tensor x) {
  read_on_host(x);
  x.reset();
}

}  // namespace

Rewards calculate_rewards(Tape& tape, std::int64_t rows) {
  Rewards result;
  {
    const Tensor rewards = no_grad::zeros(tape, {rows, 1}, DType::kFloat32);
    no_grad::from_list(tape, {rows}, DType::kFloat32).reset();  // what a function returns, copied into its column
    no_grad::any(no_grad::all(no_grad::isnan(rewards), 1)).reset();
    read_on_host(tape);
    result.of_functions = gathered(rewards);
  }
  result.cannot_be_scored = no_grad::all(no_grad::isnan(result.of_functions), 1);
  result.all = weighted_sum(result.of_functions);
  return result;
}

Tensor grpo_advantages(Rewards& rewards, std::int64_t generations) {
  const Tensor groups = in_groups(rewards.all, generations);
  const std::int64_t times = groups.size(1);
  rewards.group_means = no_grad::repeat_interleave(no_grad::nanmean(groups, kOfGroup, false), times);
  rewards.deviations = no_grad::repeat_interleave(deviations_of(groups), times);
  Tensor advantages = no_grad::subtract(rewards.all, rewards.group_means);
  advantages = no_grad::divide(advantages, no_grad::add(rewards.deviations));
  rewards.deviates_not = is_close_to_zero(rewards.deviations);
  advantages = no_grad::nan_to_num(advantages);
  rewards.advantages_of_all = no_grad::clone(advantages);
  return advantages;
}

Tensor rloo_advantages(Rewards& rewards, const Tensor& kl, std::int64_t generations) {
  if (kl.defined()) rewards.all = no_grad::subtract(rewards.all, no_grad::multiply(kl));
  rewards.groups = in_groups(rewards.all, generations);
  const Tensor& groups = rewards.groups;
  rewards.group_means = no_grad::nanmean(groups, kOfGroup, false);
  rewards.deviations = deviations_of(groups);
  rewards.counts = no_grad::sum(no_grad::bitwise_not(no_grad::isnan(groups)), 1);
  rewards.sums = no_grad::nansum(groups, kOfGroup, true);
  {
    const Tensor differences = no_grad::subtract(rewards.sums, groups);
    rewards.baselines = no_grad::divide(differences, no_grad::unsqueeze(no_grad::subtract(rewards.counts), 1));
  }
  Tensor advantages = no_grad::subtract(rewards.all, view(rewards.baselines, rewards.all.shape()));
  advantages = no_grad::nan_to_num(advantages);
  rewards.deviates_not = is_close_to_zero(rewards.deviations);
  rewards.advantages_of_all = no_grad::clone(advantages);
  return advantages;
}

void look_at_rewards(Rewards& rewards) {
  const auto mean_and_deviation = [](const Tensor& x) {
    look_at_number(no_grad::nanmean(x, all_dimensions(x), false));
    look_at_number(no_grad::nanstd(x, all_dimensions(x)));
  };
  mean_and_deviation(rewards.of_functions);
  rewards.all = weighted_sum(rewards.of_functions);
  mean_and_deviation(rewards.all);
  look_at_number(mean(no_grad::to(rewards.deviates_not, DType::kFloat32), 1, false));
}

}  // namespace memcalc
