// MIRRORS(trl, "trainer/grpo_trainer.py", "1.16.0")
#include "memcalc/train/trl/grpo_loss.h"

#include <array>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/nan_to_num.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/gather.h"
#include "memcalc/train/trl/metrics.h"

namespace memcalc {

namespace {

/// torch.stack() of two numbers.
Tensor stacked(const Tensor& sum, const Tensor& count) {
  return no_grad::cat(no_grad::unsqueeze(sum, 0), no_grad::unsqueeze(count, 0), 0);
}

/// (totals[0] / totals[1].clamp(min=1.0)).item()
void look_at_quotient(const Tensor& totals) {
  no_grad::divide(no_grad::slice(totals, 0, 0, 1), no_grad::clamp(no_grad::slice(totals, 0, 1, 1))).reset();
  read_on_host(totals);
}

struct SumAndNumber {
  Tensor sum, number;
};
SumAndNumber of_masked(const Tensor& x, const Tensor& mask) {
  const auto sum_of_masked = [&] {
    const Tensor masked = no_grad::multiply(x, mask);
    return sum_all(masked);
  };
  Tensor sum = sum_of_masked();
  return {std::move(sum), no_grad::to(no_grad::sum(mask), DType::kFloat32)};
}

}  // namespace

Tensor look_at_masked_mean(const Tensor& x, const Tensor& mask) {
  Tensor totals = [&] {
    const auto [sum, number] = of_masked(x, mask);
    return stacked(sum, number);
  }();
  totals = no_grad::clone(totals);  // accelerator.reduce()
  look_at_quotient(totals);
  return totals;
}

void look_at_extreme(const Tensor& x, Tensor (*extreme)(Arg)) {
  no_grad::all(no_grad::isnan(x)).reset();
  read_on_host(x);
  const auto numbers = [&] {
    const Tensor are_numbers = no_grad::bitwise_not(no_grad::isnan(x));
    return index_by_mask(x, 0, are_numbers, x.size(0));
  };
  extreme(numbers()).reset();
  read_on_host(x);
}

ClippedObjective::ClippedObjective(const Tensor& ratio, const Tensor& advantages)
    : clamped(clamp(ratio)),
      loss1(multiply(ratio, advantages)),
      loss2(multiply(clamped, advantages)),
      loss(negate(extremum(aten::kMinimum, loss1, loss2))) {}

Clipping::Clipping(const Tensor& ratio, const Tensor& advantages)
    : is_low(no_grad::bitwise_and(no_grad::less(ratio), no_grad::less(advantages))),
      is_high(no_grad::bitwise_and(no_grad::greater(ratio), no_grad::greater(advantages))),
      is_clipped(no_grad::bitwise_or(is_low, is_high)) {}

namespace {

/// Ratios that have one column are of whole completions.
bool is_of_sequences(const Tensor& ratio) { return ratio.size(1) == 1; }

/// global_masked_mean
void look_at_global_mean(const Tensor& x, const Tensor& mask) {
  const auto [sum, number] = is_of_sequences(x)
                                 ? SumAndNumber{sum_all(x), no_grad::from_list(x.tape(), {}, DType::kFloat32)}
                                 : of_masked(x, mask);
  look_at_quotient(no_grad::clone(stacked(sum, number)));  // accelerator.reduce()
}

/// masked_seq_mean, of all processes.
Tensor means_of_sequences(const Tensor& x, const Tensor& mask) {
  if (is_of_sequences(x)) return gathered(view(x, {x.size(0)}));
  const auto over_tokens = [](Arg values) { return sum(*values, 0b10, false); };
  const Tensor of_masked = over_tokens(no_grad::multiply(x, mask));
  return gathered(no_grad::divide(of_masked, no_grad::sum(mask, 1)));
}

/// How many ratios are clipped, below and above.
void look_at_clipping(const Tensor& ratio, const Tensor& advantages, const Tensor& mask) {
  const Clipping clipping(ratio, advantages);
  for (const Tensor* each : {&clipping.is_low, &clipping.is_high, &clipping.is_clipped}) {
    look_at_global_mean(no_grad::to(*each, DType::kFloat32), mask);
  }
  const Tensor low = means_of_sequences(no_grad::to(clipping.is_low, DType::kFloat32), mask);
  look_at_extreme(low, no_grad::min);
  const Tensor high = means_of_sequences(no_grad::to(clipping.is_high, DType::kFloat32), mask);
  look_at_extreme(high, no_grad::max);
}

/// get_gamma_weights: of completions, and nothing of it is differentiated.
Tensor gamma_weights(Tape& tape, const Tensor& advantages, const Tensor& log_ratio, const ScoredCompletions& inputs) {
  const NoGrad no_grad(tape.modes);
  const Tensor clamped = no_grad::clamp(log_ratio);
  Tensor seq_log_ratio = sum(no_grad::multiply(clamped, inputs.completion_mask), 0b10, true);
  if (inputs.importance_sampling_ratio.defined()) {
    const Tensor log_is_ratio = no_grad::clamp(no_grad::logarithm(inputs.importance_sampling_ratio));
    seq_log_ratio = add_in_place(seq_log_ratio, sum(log_is_ratio, 0b10, true));
  }
  const Tensor log_w_seq = no_grad::clamp(seq_log_ratio);
  const Tensor w_seq = no_grad::exponential(log_w_seq);
  const Tensor is_positive = no_grad::greater_equal(advantages);
  const Tensor k_seq = no_grad::to(is_positive, DType::kFloat32);  // where() of two numbers: [rows, 1]
  const Tensor lambda_seq = no_grad::clamp(no_grad::to(is_positive, DType::kFloat32));
  const Tensor log_phi = no_grad::subtract(no_grad::add(lambda_seq, no_grad::multiply(k_seq, log_w_seq)),
                                           no_grad::multiply(lambda_seq, w_seq));
  return no_grad::nan_to_num(no_grad::exponential(log_phi));
}

/// per_token_loss, and Python's variables of which it is made.
struct TokenLoss {
  Tensor loss;
  Tensor phi_seq;
  std::array<Tensor, 3> others;
};

/// -min(…) of clipped ratios, or what stands in its place.
TokenLoss loss_of_tokens(Tape& tape, const Training& training, const ScoredCompletions& inputs, const PerToken& policy,
                         const Tensor& advantages, const Tensor& log_ratio, const Tensor& ratio) {
  switch (training.grpo_loss) {
    case GrpoLoss::kCispo: {
      const Tensor clamped = tape.detach(clamp(ratio));
      return {.loss = multiply(no_grad::multiply(no_grad::negate(clamped), advantages), policy.log_probs),
              .others = {clamped}};
    }
    case GrpoLoss::kSapo: {
      const Tensor temperatures = no_grad::to(no_grad::greater(advantages), DType::kFloat32);  // where() of two numbers
      const Tensor raised = sigmoid(multiply(temperatures, add_scalar(ratio)));
      const Tensor soft = divide(multiply_scalar(raised), temperatures);
      return {.loss = multiply(negate(soft), advantages), .others = {temperatures, soft}};
    }
    case GrpoLoss::kVespo: {
      const Tensor phi_seq = gamma_weights(tape, advantages, log_ratio, inputs);
      return {.loss = multiply(no_grad::multiply(no_grad::negate(phi_seq), advantages), policy.log_probs),
              .phi_seq = phi_seq};
    }
    default: {
      const ClippedObjective clipped(ratio, advantages);
      return {.loss = clipped.loss, .others = {clipped.clamped, clipped.loss1, clipped.loss2}};
    }
  }
}

/// torch.exp(reference - log_probs) - (reference - log_probs) - 1, from the left to the right.
Tensor kl_of_tokens(const Tensor& reference, const Tensor& log_probs) {
  const Tensor difference = [&] {
    const Tensor raised = [&] {
      const Tensor exponent = subtract(reference, log_probs);
      return exponential(exponent);
    }();
    const Tensor subtracted = subtract(reference, log_probs);
    return subtract(raised, subtracted);
  }();
  return add_scalar(difference);
}

/// x.clamp(min=1.0) of integers: of their copy in float32.
Tensor at_least_one(const Tensor& x) {
  const Tensor copy = no_grad::to(x, DType::kFloat32);
  return no_grad::clamp(copy);
}

/// mask.sum(-1).clamp(min=1.0)
Tensor tokens_of(const Tensor& mask) {
  const Tensor tokens = no_grad::sum(mask, 1);
  return at_least_one(tokens);
}

/// By what the sum of the tokens' losses is divided.
Tensor reduced_loss(GrpoLoss loss, const Tensor& per_token_loss, const ScoredCompletions& inputs) {
  const Tensor& mask = inputs.completion_mask;
  switch (loss) {
    case GrpoLoss::kGrpo:
    case GrpoLoss::kSapo: {
      const Tensor of_completions = sum(multiply(per_token_loss, mask), 0b10, false);
      return divide_scalar(mean(divide(of_completions, tokens_of(mask)), 1, false));
    }
    case GrpoLoss::kBnpo: {
      const Tensor all = sum(multiply(per_token_loss, mask), 0b11, false);
      const Tensor tokens = no_grad::sum(mask);
      return divide_scalar(divide(all, at_least_one(tokens)));
    }
    case GrpoLoss::kDrGrpo: return divide_scalar(divide_scalar(sum(multiply(per_token_loss, mask), 0b11, false)));
    case GrpoLoss::kLuspo: return divide_scalar(mean(sum(multiply(per_token_loss, mask), 0b10, false), 1, false));
    case GrpoLoss::kDapo:
    case GrpoLoss::kCispo:
    case GrpoLoss::kVespo: break;
  }
  Tensor normalizer = no_grad::divide(at_least_one(inputs.number_of_items));
  if (mask.tape().modes.training) {  // of a generation that is trained on in several steps
    normalizer = no_grad::divide(no_grad::multiply(normalizer));
  }
  const auto sum_of_tokens = [&] {
    const Tensor masked = multiply(per_token_loss, mask);
    return sum(masked, 0b11, false);
  };
  return divide(sum_of_tokens(), normalizer);
}

}  // namespace

Tensor grpo_loss(Tape& tape, const Training& training, const ScoredCompletions& inputs, const PerToken& policy) {
  const Tensor& mask = inputs.completion_mask;
  const Tensor advantages = unsqueeze(inputs.advantages, 1);
  const Tensor old_log_probs =
      inputs.old_per_token_logps.defined() ? inputs.old_per_token_logps : tape.detach(policy.log_probs);
  const Tensor log_ratio = subtract(policy.log_probs, old_log_probs);
  Tensor log_weights = log_ratio;
  if (training.importance_level == ImportanceLevel::kSequence) {
    const Tensor of_completions = sum(multiply(log_ratio, mask), 0b10, false);
    log_weights = unsqueeze(divide(of_completions, tokens_of(mask)), 1);
  }
  const Tensor ratio = exponential(log_weights);
  Tensor per_token_kl;
  if (inputs.ref_per_token_logps.defined()) {
    per_token_kl = kl_of_tokens(inputs.ref_per_token_logps, policy.log_probs);
    per_token_kl = multiply(per_token_kl, ratio);  // use_bias_correction_kl, which is on where nothing is said
  }
  TokenLoss of_tokens = loss_of_tokens(tape, training, inputs, policy, advantages, log_ratio, ratio);
  Tensor per_token_loss = std::move(of_tokens.loss);
  if (inputs.importance_sampling_ratio.defined() && training.grpo_loss != GrpoLoss::kVespo) {
    per_token_loss = multiply(per_token_loss, inputs.importance_sampling_ratio);
  }
  if (per_token_kl.defined()) per_token_loss = add(per_token_loss, multiply_scalar(per_token_kl));
  Tensor loss = reduced_loss(training.grpo_loss, per_token_loss, inputs);
  if (policy.aux_loss.defined()) {
    loss = add(loss, divide_scalar(multiply_scalar(policy.aux_loss)));
    look_at(policy.aux_loss);
  }
  const NoGrad no_grad(tape.modes);
  if (per_token_kl.defined()) look_at_global_mean(tape.detach(per_token_kl), mask);
  look_at_global_mean(policy.entropies, mask);
  switch (training.grpo_loss) {
    case GrpoLoss::kSapo: break;
    case GrpoLoss::kCispo: {
      const Tensor is_clipped =
          no_grad::bitwise_and(no_grad::greater(tape.detach(ratio)), no_grad::greater(advantages));
      look_at_global_mean(no_grad::to(is_clipped, DType::kFloat32), mask);
      break;
    }
    case GrpoLoss::kVespo: look_at_global_mean(of_tokens.phi_seq, mask); break;
    default: look_at_clipping(tape.detach(ratio), advantages, mask);
  }
  return loss;
}

}  // namespace memcalc
