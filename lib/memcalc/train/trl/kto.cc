// MIRRORS(trl, "trainer/kto_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/kto_trainer.py", "1.13.0")
#include <tuple>
#include <utility>
#include <vector>

#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/nanmean.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/rsub.h"
#include "memcalc/symbolic/ops/selected_log_probs.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/gather.h"
#include "memcalc/train/trl/batch.h"
#include "memcalc/train/trl/losses.h"
#include "memcalc/train/trl/metrics.h"

namespace memcalc {

namespace {

constexpr LogProbOutputs kHeadOutputs{.entropy = true, .mean_logits = true};

bool holds_logits(const Tape& tape) { return tape.behaviors.preference_scores != PreferenceScores::kFusedHead; }

/// add_fused_lm_head(self.ref_model): a second model gives log-probabilities alone, adapters are on the first.
LogProbOutputs outputs_of_reference(const TrlModels& models) {
  return models.reference ? LogProbOutputs{} : kHeadOutputs;
}

/// _compute_kl_logps: of the other samples' answers, [samples].
Tensor kl_log_probs(Tape& tape, const Batch& inputs, const BatchShape& shape, LogProbOutputs outputs_of_head,
                    const CallModel& model) {
  const FusedHeadCall head{.outputs = outputs_of_head, .targets = shape.answers.other_labels};
  Batch batch;
  batch.input_ids = inputs.others[kKlInputIds];
  batch.attention_mask = inputs.others[kKlAttentionMask];
  batch.padded = shape.answers.other_padded;
  const NoGrad no_grad(tape.modes);
  if (holds_logits(tape)) {
    Tensor logits = model(batch).logits;
    return sum(log_probs_of_logits(logits, batch.input_ids, inputs.others[kKlCompletionMask]), 0b10, false);
  }
  batch.fused_head = &head;
  batch.labels = no_grad::masked_fill(batch.input_ids, no_grad::equal(inputs.others[kKlCompletionMask]));
  ModelOutput outputs = model(batch);
  const Tensor log_probs = outputs.fused.log_probs;
  outputs.clear();
  return sum(log_probs, 0b10, false);
}

/// Of the reference: of the samples' answers and of the others.
struct ReferenceLogProbs {
  Tensor answers, kl, per_token;
  ModelOutput outputs;
};

ReferenceLogProbs reference_log_probs(Tape& tape, const RunSpec& run, const Batch& batch, const BatchShape& shape,
                                      const TrlModels& models) {
  ReferenceLogProbs result;
  if (run.training().reference == Reference::kPrecomputed) {
    result.answers = batch.others[kRefLogps];
    if (run.training().kto_loss == KtoLoss::kKto) result.kl = batch.others[kRefKlLogps];
    return result;
  }
  const NoGrad no_grad(tape.modes);
  const bool has_model = static_cast<bool>(models.reference);
  record_reference_questions(tape, run, models);
  const WithoutAdapters adapters(tape, models);
  const CallModel& model = has_model ? models.reference : models.trainer_model;
  if (run.training().kto_loss == KtoLoss::kKto) {
    result.kl = kl_log_probs(tape, batch, shape, outputs_of_reference(models), model);
  }
  result.outputs = model(batch);
  result.per_token = holds_logits(tape)
                         ? log_probs_of_logits(result.outputs.logits, batch.input_ids, batch.completion_mask)
                         : result.outputs.fused.log_probs;
  result.answers = sum(result.per_token, 0b10, false);
  return result;
}

/// Of the desirable or the undesirable answers: the losses, and the rewards that are logged. kto: 1 - sigmoid(beta *
/// (log-ratios - kl)), of the undesirable kl - log-ratios; apo_zero_unpaired has no kl, and of the undesirable the
/// sigmoid itself.
struct Answers {
  Tensor log_ratios, losses, rewards;
};

Answers losses_of(Tape& tape, KtoLoss loss, const Tensor& log_probs, const Tensor& reference, const Tensor& kl,
                  bool desirable) {
  Answers answers;
  answers.log_ratios = subtract(log_probs, reference);
  const Tensor& log_ratios = answers.log_ratios;
  const bool has_kl = loss == KtoLoss::kKto;
  Tensor inner = log_ratios;
  if (has_kl) inner = desirable ? subtract(log_ratios, kl) : subtract(kl, log_ratios);
  inner = multiply_scalar(inner);
  answers.losses = sigmoid(inner);
  inner.reset();
  if (has_kl || desirable) answers.losses = subtract_from_number(answers.losses);
  answers.rewards = multiply_scalar(tape.detach(log_ratios));
  return answers;
}

}  // namespace

Tensor kto_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const BatchShape& shape, const TrlModels& models) {
  const KtoLoss loss_type = run.training().kto_loss;
  const bool has_kl = loss_type == KtoLoss::kKto;
  const AnswersShape& answers = shape.answers;
  const std::int64_t chosen = answers.first_samples, rejected = shape.rows - chosen;
  const FusedHeadCall others_head{.outputs = outputs_of_reference(models), .targets = shape.valid_labels};
  FusedHeadCall head{.outputs = kHeadOutputs, .targets = shape.valid_labels};
  head.balances_experts = run.training().balances_experts;
  const Tensor& label = inputs.others[kLabel];
  const Tensor num_chosen = no_grad::sum(label), num_rejected = no_grad::subtract(num_chosen);
  const Tensor kl_logps = has_kl ? kl_log_probs(tape, inputs, shape, kHeadOutputs, models.policy) : Tensor();
  Batch batch = inputs;
  if (!holds_logits(tape)) {
    batch.fused_head = &head;
    batch.labels = no_grad::masked_fill(inputs.input_ids, no_grad::equal(inputs.completion_mask));
  }
  ModelOutput outputs = models.policy(batch);
  if (!holds_logits(tape)) batch.fused_head = &others_head;
  const Tensor per_token = holds_logits(tape)
                               ? log_probs_of_logits(outputs.logits, inputs.input_ids, inputs.completion_mask)
                               : slice_whole(outputs.fused.log_probs, 1);  // [:, -seq_len:]
  const Tensor logps = sum(per_token, 0b10, false);
  const Tensor chosen_idx = nonzero(label, chosen), rejected_idx = nonzero(no_grad::bitwise_not(label), rejected);
  const Tensor chosen_logps = index_select(logps, 0, chosen_idx), rejected_logps = index_select(logps, 0, rejected_idx);
  const ReferenceLogProbs reference = reference_log_probs(tape, run, batch, shape, models);
  const Tensor ref_chosen = index_select(reference.answers, 0, chosen_idx);
  const Tensor ref_rejected = index_select(reference.answers, 0, rejected_idx);
  Tensor kl;
  if (has_kl) {
    const NoGrad no_grad(tape.modes);
    const Tensor own = mean(subtract(kl_logps, reference.kl), 1, false);
    kl = clamp(mean(gathered(own), tape.processes > 1 ? 1 : 0, false));
  } else {
    kl = no_grad::from_list(tape, {1}, DType::kFloat32);
  }
  const Answers of_chosen = losses_of(tape, loss_type, chosen_logps, ref_chosen, kl, true);
  const Answers of_rejected = losses_of(tape, loss_type, rejected_logps, ref_rejected, kl, false);
  const Tensor losses = cat(multiply_scalar(of_chosen.losses), multiply_scalar(of_rejected.losses), 0);
  // The metrics; their variables live as long as the others.
  SumAndCount entropy;
  Tensor per_token_entropy;
  Tensor chosen_logits, rejected_logits, chosen_mask, rejected_mask;
  {
    const NoGrad no_grad(tape.modes);
    const Tensor mask = no_grad::slice(inputs.completion_mask, 1, 1, inputs.completion_mask.size(1) - 1);
    const Tensor logits = holds_logits(tape) ? tape.detach(outputs.logits) : outputs.fused.mean_logits;
    per_token_entropy = holds_logits(tape) ? entropy_from_logits(logits) : outputs.fused.entropy;
    entropy = look_at_entropy(per_token_entropy, mask);
    if (tape.modes.training) look_at_sum(inputs.attention_mask);
    chosen_logits = index_select(logits, 0, chosen_idx);
    rejected_logits = index_select(logits, 0, rejected_idx);
    chosen_mask = index_select(mask, 0, chosen_idx);
    rejected_mask = index_select(mask, 0, rejected_idx);
    std::vector<Tensor> totals;  // of logits, and of tokens
    const auto sum_of_logits = holds_logits(tape) ? sum_of_mean_logits : sum_of_tokens;
    for (const auto& [of_answers, tokens, labels] :
         {std::tuple(&chosen_logits, &chosen_mask, answers.first_labels),
          std::tuple(&rejected_logits, &rejected_mask, shape.valid_labels - answers.first_labels)}) {
      totals.push_back(sum_of_logits(*of_answers, *tokens, labels));
      totals.push_back(no_grad::sum(*tokens));
    }
    look_at_totals(totals);
    for (const Tensor* each : {&num_chosen, &num_rejected}) look_at_total(*each);
    for (const Tensor* each : {&of_chosen.rewards, &chosen_logps, &of_rejected.rewards, &rejected_logps})
      look_at_sum(*each);
  }
  Tensor loss = nanmean(losses);
  if (head.balances_experts) {
    loss = add(loss, multiply_scalar(outputs.fused.aux_loss));
    look_at(outputs.fused.aux_loss);
  }
  outputs.clear();
  return loss;
}

}  // namespace memcalc
