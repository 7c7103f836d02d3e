// MIRRORS(trl, "trainer/dpo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/dpo_trainer.py", "1.13.0")
#include <array>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/selected_log_probs.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/gather.h"
#include "memcalc/train/trl/batch.h"
#include "memcalc/train/trl/losses.h"
#include "memcalc/train/trl/metrics.h"

namespace memcalc {

namespace {

/// What is known of each token but the last: what the head's own function computed, or the logits.
struct OfTokens {
  const FusedHead& fused;
  Tensor logits;  // [sequences, tokens - 1, words]; undefined: the former

  [[nodiscard]] Tensor entropy() const { return logits.defined() ? entropy_from_logits(logits) : fused.entropy; }
  /// The mean logits of the tokens of a mask, `count`, of `samples` sequences from `start` on: their sum.
  [[nodiscard]] Tensor sum_of_logits(std::int64_t start, std::int64_t samples, const Tensor& mask,
                                     std::int64_t count) const {
    if (!logits.defined()) return sum_of_tokens(no_grad::slice(fused.mean_logits, 0, start, samples), mask, count);
    return sum_of_mean_logits(slice(logits, 0, start, samples), mask, count);
  }
};

/// Variables of mean_token_accuracy, which live as long as the others.
struct Predictions {
  Tensor chosen, is_chosen, correct;
};

/// Which tokens of the chosen answers the model would have chosen.
Predictions predictions_of(const OfTokens& of_tokens, const Batch& inputs, const Tensor& chosen_mask) {
  const std::int64_t samples = chosen_mask.size(0), tokens = chosen_mask.size(1);
  Predictions result;
  if (!of_tokens.logits.defined()) {
    const Tensor is_chosen = no_grad::to(chosen_mask, DType::kBool);
    result.correct = no_grad::bitwise_and(no_grad::slice(of_tokens.fused.is_top1, 0, 0, samples), is_chosen);
    return result;
  }
  result.chosen = argmax_last(slice(of_tokens.logits, 0, 0, samples));
  result.is_chosen = no_grad::to(chosen_mask, DType::kBool);
  const Tensor labels = no_grad::slice(no_grad::slice(inputs.input_ids, 1, 1, tokens), 0, 0, samples);
  result.correct = no_grad::bitwise_and(no_grad::equal(result.chosen, labels), result.is_chosen);
  return result;
}

/// What DPOTrainer logs of a step beside its loss: entropy, tokens, mean logits, accuracies, rewards, margins.
void look_at_preferences(const OfTokens& of_tokens, const Batch& inputs, const std::array<Tensor, 4>& of_answers,
                         const BatchShape& shape) {
  Tape& tape = inputs.input_ids.tape();
  const NoGrad no_grad(tape.modes);
  const std::int64_t samples = shape.rows, chosen_tokens = shape.answers.first_labels;
  const auto& [chosen_logps, rejected_logps, chosen_logratios, rejected_logratios] = of_answers;
  const Tensor mask = no_grad::slice(inputs.completion_mask, 1, 1, inputs.completion_mask.size(1) - 1);
  const Tensor chosen_mask = no_grad::slice(mask, 0, 0, samples),
               rejected_mask = no_grad::slice(mask, 0, samples, samples);
  const Tensor per_token_entropy = of_tokens.entropy();
  SumAndCount entropy = look_at_entropy(per_token_entropy, mask);
  if (tape.modes.training) look_at_sum(inputs.attention_mask);
  std::vector<Tensor> totals;  // of logits, and of tokens
  for (const auto& [part, start] : {std::pair(&chosen_mask, std::int64_t{0}), std::pair(&rejected_mask, samples)}) {
    const std::int64_t tokens = start == 0 ? chosen_tokens : shape.valid_labels - chosen_tokens;
    totals.push_back(of_tokens.sum_of_logits(start, samples, *part, tokens));
    totals.push_back(no_grad::sum(*part));
  }
  look_at_totals(totals);
  const Predictions predictions = predictions_of(of_tokens, inputs, chosen_mask);
  const Tensor tokens = no_grad::sum(predictions.is_chosen.defined() ? predictions.is_chosen : chosen_mask);
  entropy.count.reset();  // total_tokens = …
  const Tensor right = no_grad::sum(predictions.correct);
  const Tensor all_right = gathered(right), all_tokens = gathered(tokens);
  const Tensor total = no_grad::sum(all_tokens);
  no_grad::greater(total).reset();
  read_on_host(tape, aten::kGt);
  no_grad::divide(no_grad::sum(all_right), total).reset();
  read_on_host(tape);
  const Tensor chosen_rewards = multiply_scalar(tape.detach(chosen_logratios));
  const Tensor rejected_rewards = multiply_scalar(tape.detach(rejected_logratios));
  look_at(chosen_rewards);
  look_at(rejected_rewards);
  const Tensor accuracies = no_grad::to(no_grad::greater(chosen_rewards, rejected_rewards), DType::kFloat32);
  look_at(accuracies);
  const Tensor margins = subtract(chosen_rewards, rejected_rewards);
  look_at(margins);
  look_at(chosen_logps);
  look_at(rejected_logps);
}

/// Of the chosen and the rejected answers. `outputs` and `per_token` live as long as the caller's variables.
std::vector<Tensor> reference_log_probs(Tape& tape, const RunSpec& run, const Batch& batch, const TrlModels& models,
                                        ModelOutput& outputs, Tensor& per_token) {
  if (run.training().reference == Reference::kPrecomputed)
    return {batch.others[kRefChosenLogps], batch.others[kRefRejectedLogps]};
  const NoGrad no_grad(tape.modes);
  const bool has_model = static_cast<bool>(models.reference);
  record_reference_questions(tape, run, models);
  const WithoutAdapters adapters(tape, models);
  outputs = (has_model ? models.reference : models.trainer_model)(batch);
  per_token = batch.fused_head != nullptr ? outputs.fused.log_probs
                                          : log_probs_of_logits(outputs.logits, batch.input_ids, batch.completion_mask);
  return halves(sum(per_token, 0b10, false));
}

}  // namespace

Tensor log_probs_of_logits(Tensor& logits, const Tensor& input_ids, const Tensor& completion_mask) {
  const std::int64_t tokens = logits.size(1) - 1;
  logits = slice(logits, 1, 0, tokens);
  const Tensor log_probs = selected_log_probs_by_sequence(logits, no_grad::slice(input_ids, 1, 1, tokens));
  return zeros_at(log_probs, no_grad::equal(no_grad::slice(completion_mask, 1, 1, tokens)));
}

Tensor dpo_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const BatchShape& shape, const TrlModels& models) {
  FusedHeadCall reference_head{.outputs = {.entropy = true, .mean_logits = true, .is_top1 = true},
                               .targets = shape.valid_labels};
  FusedHeadCall head = reference_head;
  // add_fused_lm_head(self.ref_model) prepares a second model for log-probabilities alone; adapters are on the first.
  if (models.reference) reference_head.outputs = {};
  head.balances_experts = run.training().balances_experts;
  Batch batch = inputs;
  const bool has_fused_head = tape.behaviors.preference_scores == PreferenceScores::kFusedHead;
  if (has_fused_head) {
    batch.fused_head = &head;
    // inputs["input_ids"].masked_fill(completion_mask == 0, -100)
    batch.labels = no_grad::masked_fill(inputs.input_ids, no_grad::equal(inputs.completion_mask));
  }
  ModelOutput outputs = models.policy(batch);
  // outputs.log_probs[:, -seq_len:].sum(dim=1)
  const Tensor per_token = has_fused_head
                               ? slice_whole(outputs.fused.log_probs, 1)
                               : log_probs_of_logits(outputs.logits, inputs.input_ids, inputs.completion_mask);
  const std::vector<Tensor> logps = halves(sum(per_token, 0b10, false));
  if (has_fused_head) batch.fused_head = &reference_head;
  ModelOutput ref_outputs;
  Tensor ref_per_token;
  const std::vector<Tensor> reference = reference_log_probs(tape, run, batch, models, ref_outputs, ref_per_token);
  Tensor chosen_logratios = subtract(logps[0], reference[0]);
  Tensor rejected_logratios = subtract(logps[1], reference[1]);
  Tensor delta_score = subtract(chosen_logratios, rejected_logratios);
  Tensor per_sequence_loss = negate(log_sigmoid(multiply_scalar(delta_score)));
  Tensor loss = add_scalar(multiply_scalar(mean(per_sequence_loss, 1, false)));  // loss = 0.0; loss += …
  if (head.balances_experts) {
    loss = add(loss, multiply_scalar(outputs.fused.aux_loss));
    look_at(outputs.fused.aux_loss);
  }
  const Tensor logits = has_fused_head ? Tensor() : tape.detach(outputs.logits);
  look_at_preferences({outputs.fused, logits}, inputs, {logps[0], logps[1], chosen_logratios, rejected_logratios},
                      shape);
  batch.labels.reset();
  outputs.clear();
  ref_outputs.clear();
  return loss;
}

}  // namespace memcalc
