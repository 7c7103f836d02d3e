// trl 1.16, experimental/orpo/orpo_trainer.py: unlike TRL's other trainers this one holds the logits, of both answers
// to every prompt and in float32.
// MIRRORS(trl, "experimental/orpo/orpo_trainer.py", "1.16.0")
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/logarithm.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/selected_log_probs.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/trl/batch.h"
#include "memcalc/train/trl/losses.h"

namespace memcalc {

namespace {

/// concatenated_inputs: the chosen answers, then the rejected ones, which are padded to the longer of the two.
struct BothAnswers {
  Tensor input_ids, attention_mask, labels;

  explicit BothAnswers(const Batch& batch)
      : input_ids(padded(batch.others[kChosenIds], batch)),
        attention_mask(padded(batch.others[kChosenMask], batch)),
        labels(padded(batch.others[kChosenLabels], batch)) {
    for (const auto& [both, place] : {std::pair(&input_ids, kRejectedIds), std::pair(&attention_mask, kRejectedMask),
                                      std::pair(&labels, kRejectedLabels)}) {
      *both = no_grad::cat(*both, padded(batch.others[place], batch), 0);
    }
  }

 private:
  /// trainer/utils.py, pad_to_length: torch.cat([tensor, pad_value * torch.ones(…)], dim=-1)
  static Tensor padded(const Tensor& x, const Batch& batch) {
    const std::int64_t columns = std::max(batch.others[kChosenIds].size(1), batch.others[kRejectedIds].size(1));
    if (x.size(1) == columns) return x;
    const Tensor ones = no_grad::ones(x.tape(), {x.size(0), columns - x.size(1)}, x.dtype());
    return no_grad::cat(x, no_grad::multiply(ones), 1);
  }
};

/// cross_entropy_loss: of every token of the chosen answers and their prompts.
Tensor chosen_loss(const Tensor& all_logits, const Tensor& labels, std::int64_t samples) {
  const std::int64_t tokens = all_logits.size(1) - 1, words = all_logits.size(2);
  const Tensor logits = contiguous(slice(slice(all_logits, 0, 0, samples), 1, 0, tokens));
  const Tensor targets = no_grad::clone(no_grad::slice(no_grad::slice(labels, 0, 0, samples), 1, 1, tokens));
  return cross_entropy(view(logits, {-1, words}), no_grad::view(targets, {-1}));
}

/// get_batch_logps: means over the tokens of each answer, [2 * samples].
Tensor mean_log_probs(const Tensor& all_logits, const Tensor& concatenated_labels) {
  const std::int64_t tokens = all_logits.size(1) - 1;
  Tensor labels = no_grad::clone(no_grad::slice(concatenated_labels, 1, 1, tokens));
  const Tensor logits = slice(all_logits, 1, 0, tokens);
  const Tensor loss_mask = no_grad::not_equal(labels);
  labels = where(no_grad::equal(labels), labels);
  const bool has_kernel = logits.tape().behaviors.preference_scores == PreferenceScores::kFusedHead;
  const Tensor per_token = (has_kernel ? selected_log_probs : selected_log_probs_by_sequence)(logits, labels);
  const Tensor answers = sum(multiply(per_token, loss_mask), 0b10, false);
  return divide(answers, no_grad::sum(loss_mask, 1));
}

/// log(1 - exp(x)), of two expressions for it the one that is exact.
Tensor log1mexp(const Tensor& x) {
  const Tensor is_small = no_grad::less(x);
  const Tensor small = log1p(negate(exponential(x)));
  return where(is_small, small, logarithm(negate(expm1(x))));
}

struct OddsRatio {
  Tensor losses, chosen_rewards, rejected_rewards, ratio, log_odds;
};

OddsRatio odds_ratio_loss(Tape& tape, const Tensor& chosen, const Tensor& rejected) {
  OddsRatio result;
  const Tensor difference = subtract(chosen, rejected);
  const Tensor chosen_part = log1mexp(chosen);
  const Tensor log_odds = subtract(difference, subtract(chosen_part, log1mexp(rejected)));
  const Tensor ratio = log_sigmoid(log_odds);
  result.losses = multiply_scalar(ratio);
  result.chosen_rewards = tape.detach(multiply_scalar(chosen));
  result.rejected_rewards = tape.detach(multiply_scalar(rejected));
  result.ratio = mean(ratio, 1, false);
  result.log_odds = mean(log_odds, 1, false);
  return result;
}

/// Eleven numbers, all of which are on the card before the host reads the first.
void look_at_answers(const OddsRatio& odds, const Tensor& all_logits, const Tensor& chosen, const Tensor& rejected,
                     const Tensor& nll_loss) {
  Tape& tape = all_logits.tape();
  const NoGrad no_grad(tape.modes);
  const std::int64_t samples = chosen.size(0), tokens = all_logits.size(1) - 1;
  const Tensor accuracies = no_grad::to(no_grad::greater(odds.chosen_rewards, odds.rejected_rewards), DType::kFloat32);
  std::vector<Tensor> metrics;
  for (const Tensor* each : {&odds.chosen_rewards, &odds.rejected_rewards, &accuracies}) {
    metrics.push_back(mean(*each, 1, false));
  }
  metrics.push_back(mean(subtract(odds.chosen_rewards, odds.rejected_rewards), 1, false));
  metrics.push_back(mean(rejected, 1, false));
  metrics.push_back(mean(chosen, 1, false));
  for (const std::int64_t first : {samples, std::int64_t{0}}) {
    const Tensor logits = slice(slice(all_logits, 0, first, samples), 1, 0, tokens);
    metrics.push_back(mean(mean(logits, 0b111, false), 0, false));
  }
  for (const Tensor* each : {&nll_loss, &odds.ratio, &odds.log_odds}) metrics.push_back(mean(*each, 0, false));
  read_on_host(tape);
}

}  // namespace

Tensor orpo_loss(Tape& tape, const Batch& inputs, const TrlModels& models) {
  const std::int64_t samples = inputs.others[kChosenIds].size(0);
  Tensor all_logits, nll_loss, all_logps;
  {
    const BothAnswers both(inputs);
    Batch batch;
    batch.input_ids = both.input_ids;
    batch.attention_mask = both.attention_mask;
    batch.padded = inputs.padded;
    const ModelOutput outputs = models.policy(batch);
    all_logits = outputs.logits;
    Tensor labels = no_grad::clone(both.input_ids);
    labels = where(no_grad::equal(both.attention_mask), labels);
    nll_loss = chosen_loss(all_logits, labels, samples);
    all_logps = mean_log_probs(all_logits, both.labels);
  }
  const Tensor chosen = slice(all_logps, 0, 0, samples), rejected = slice(all_logps, 0, samples, samples);
  const OddsRatio odds = odds_ratio_loss(tape, chosen, rejected);
  Tensor loss = subtract(nll_loss, mean(odds.losses, 1, false));
  look_at_answers(odds, all_logits, chosen, rejected, nll_loss);
  return loss;
}

}  // namespace memcalc
