// MIRRORS(trl, "trainer/grpo_trainer.py", "1.16.0")
#include "memcalc/train/trl/grpo_loss.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/nan_to_num.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/trl/metrics.h"

namespace memcalc {

namespace {

/// accelerator.reduce() of both in one tensor: a clone. totals[0] / totals[1].clamp(min=1.0)
void divide_reduced(const Tensor& sum, const Tensor& count) {
  Tensor totals = no_grad::cat(no_grad::unsqueeze(sum, 0), no_grad::unsqueeze(count, 0), 0);
  totals = no_grad::clone(totals);
  no_grad::divide(sum, no_grad::clamp(count)).reset();  // of a number of totals each
}

}  // namespace

void look_at_masked_mean(const Tensor& x, const Tensor& mask) {
  Tape& tape = x.tape();
  const Tensor sum = sum_all(no_grad::multiply(x, mask));
  const Tensor count = no_grad::to(no_grad::sum(mask), DType::kFloat32);
  divide_reduced(sum, count);
  read_on_host(tape);
}

Tensor clipped(const Tensor& ratio, const Tensor& advantages) {
  const Tensor clamped = clamp(ratio);
  const Tensor loss1 = multiply(ratio, advantages), loss2 = multiply(clamped, advantages);
  return negate(extremum(aten::kMinimum, loss1, loss2));
}

namespace {

/// Ratios that have one column are of whole completions.
bool is_of_sequences(const Tensor& ratio) { return ratio.size(1) == 1; }

/// global_masked_mean
void look_at_global_mean(const Tensor& x, const Tensor& mask) {
  if (!is_of_sequences(x)) return look_at_masked_mean(x, mask);
  Tape& tape = x.tape();
  const Tensor sum = sum_all(x);
  const Tensor count = no_grad::from_list(tape, {}, DType::kFloat32);
  divide_reduced(sum, count);
  read_on_host(tape);
}

/// How many ratios are clipped, below and above.
void look_at_clipping(const Tensor& ratio, const Tensor& advantages, const Tensor& mask) {
  const Tensor is_low = no_grad::bitwise_and(no_grad::less(ratio), no_grad::less(advantages));
  const Tensor is_high = no_grad::bitwise_and(no_grad::greater(ratio), no_grad::greater(advantages));
  const Tensor is_clipped = no_grad::bitwise_or(is_low, is_high);
  for (const Tensor* each : {&is_low, &is_high, &is_clipped}) {
    look_at_global_mean(no_grad::to(*each, DType::kFloat32), mask);
  }
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

/// -min(…) of clipped ratios, or what stands in its place.
Tensor loss_of_tokens(Tape& tape, const Training& training, const ScoredCompletions& inputs, const PerToken& policy,
                      const Tensor& advantages, const Tensor& log_ratio, const Tensor& ratio, Tensor& phi_seq) {
  switch (training.grpo_loss) {
    case GrpoLoss::kCispo: {
      const Tensor clamped = tape.detach(clamp(ratio));
      return multiply(no_grad::multiply(no_grad::negate(clamped), advantages), policy.log_probs);
    }
    case GrpoLoss::kSapo: {
      const Tensor temperatures = no_grad::to(no_grad::greater(advantages), DType::kFloat32);  // where() of two numbers
      const Tensor raised = sigmoid(multiply(temperatures, add_scalar(ratio)));
      const Tensor soft = divide(multiply_scalar(raised), temperatures);
      return multiply(negate(soft), advantages);
    }
    case GrpoLoss::kVespo:
      phi_seq = gamma_weights(tape, advantages, log_ratio, inputs);
      return multiply(no_grad::multiply(no_grad::negate(phi_seq), advantages), policy.log_probs);
    default: return clipped(ratio, advantages);
  }
}

/// By what the sum of the tokens' losses is divided.
Tensor reduced_loss(GrpoLoss loss, const Tensor& per_token_loss, const ScoredCompletions& inputs) {
  const Tensor& mask = inputs.completion_mask;
  switch (loss) {
    case GrpoLoss::kGrpo:
    case GrpoLoss::kSapo: {
      const Tensor of_completions = sum(multiply(per_token_loss, mask), 0b10, false);
      const Tensor tokens = no_grad::clamp(no_grad::sum(mask, 1));
      return divide_scalar(mean(divide(of_completions, tokens), 1, false));
    }
    case GrpoLoss::kBnpo: {
      const Tensor all = sum(multiply(per_token_loss, mask), 0b11, false);
      return divide_scalar(divide(all, no_grad::clamp(no_grad::sum(mask))));
    }
    case GrpoLoss::kDrGrpo: return divide_scalar(divide_scalar(sum(multiply(per_token_loss, mask), 0b11, false)));
    case GrpoLoss::kLuspo: return divide_scalar(mean(sum(multiply(per_token_loss, mask), 0b10, false), 1, false));
    case GrpoLoss::kDapo:
    case GrpoLoss::kCispo:
    case GrpoLoss::kVespo: break;
  }
  Tensor normalizer = no_grad::divide(no_grad::clamp(inputs.number_of_items));
  if (mask.tape().modes.training) {  // of a generation that is trained on in several steps
    normalizer = no_grad::multiply(normalizer);
    normalizer = no_grad::divide(normalizer);
  }
  return divide(sum(multiply(per_token_loss, mask), 0b11, false), normalizer);
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
    const Tensor tokens = no_grad::clamp(no_grad::sum(mask, 1));
    log_weights = unsqueeze(divide(of_completions, tokens), 1);
  }
  const Tensor ratio = exponential(log_weights);
  Tensor per_token_kl;
  if (inputs.ref_per_token_logps.defined()) {
    const Tensor& reference = inputs.ref_per_token_logps;
    per_token_kl =
        add_scalar(subtract(exponential(subtract(reference, policy.log_probs)), subtract(reference, policy.log_probs)));
  }
  Tensor phi_seq;
  Tensor per_token_loss = loss_of_tokens(tape, training, inputs, policy, advantages, log_ratio, ratio, phi_seq);
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
  if (per_token_kl.defined()) look_at_masked_mean(tape.detach(per_token_kl), mask);
  look_at_masked_mean(policy.entropies, mask);
  switch (training.grpo_loss) {
    case GrpoLoss::kSapo: break;
    case GrpoLoss::kCispo: {
      const Tensor is_clipped =
          no_grad::bitwise_and(no_grad::greater(tape.detach(ratio)), no_grad::greater(advantages));
      look_at_global_mean(no_grad::to(is_clipped, DType::kFloat32), mask);
      break;
    }
    case GrpoLoss::kVespo: look_at_global_mean(phi_seq, mask); break;
    default: look_at_clipping(tape.detach(ratio), advantages, mask);
  }
  return loss;
}

}  // namespace memcalc
