// LLaMA-Factory 0.9.5: train/dpo/trainer.py (CustomDPOTrainer), train/kto/trainer.py (CustomKTOTrainer),
// train/trainer_utils.py (get_batch_logps). Their vectors of a number for each sample are blocks of 512 bytes.
// MIRRORS(llamafactory, "train/dpo/trainer.py", "0.9.5")
// MIRRORS(llamafactory, "train/kto/trainer.py", "0.9.5")
// MIRRORS(llamafactory, "train/trainer_utils.py", "0.9.5")
#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/nanmean.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/gather.h"
#include "memcalc/train/trl/batch.h"
#include "memcalc/train/trl/losses.h"
#include "memcalc/train/trl/metrics.h"

namespace memcalc {

namespace {

/// What the model says of some answers: its logits, and of each answer the sum of its tokens' logarithms.
struct Scores {
  Tensor logits;     // [sequences, tokens, words] float32
  Tensor log_probs;  // [sequences]
  Tensor means;      // of an answer's tokens
};

/// get_batch_logps
Scores scores_of(Tensor logits, const Tensor& labels) {
  const std::int64_t tokens = labels.size(1) - 1;
  Tensor targets = no_grad::clone(no_grad::slice(labels, 1, 1, tokens));
  const Tensor loss_mask = no_grad::not_equal(targets);
  targets = masked_fill_in_place(targets, no_grad::equal(targets));
  const Tensor log_softmaxes = log_softmax(slice(logits, 1, 0, tokens));
  const Tensor per_token = squeeze(gather(log_softmaxes, no_grad::unsqueeze(targets, 2)), 2);
  const Tensor valid_length = no_grad::sum(loss_mask, 1);
  Scores scores;
  scores.log_probs = sum(multiply(per_token, loss_mask), 0b10, false);
  scores.means = divide(scores.log_probs, valid_length);
  scores.logits = std::move(logits);
  return scores;
}

/// concatenated_forward and KTO's forward: nested_detach(batch, clone=True), then the model without its own loss.
/// `batch`: what the collator made, ids, mask and labels of answers one after the other; `first`: of these the ids.
Scores call(const CallModel& model, std::span<const Tensor* const> batch, std::size_t first, bool padded) {
  std::vector<Tensor> clones;
  for (const Tensor* each : batch) clones.push_back(no_grad::clone(*each));
  Batch inputs;
  inputs.input_ids = clones[first];
  inputs.attention_mask = clones[first + 1];
  inputs.padded = padded;
  ModelOutput outputs = model(inputs);
  Tensor logits = to_dtype(outputs.logits, DType::kFloat32);
  outputs.clear();
  Scores scores = scores_of(std::move(logits), clones[first + 2]);
  for (Tensor& each : clones) each.reset();
  return scores;
}

/// Of the reference: another model, or the adapters switched off.
template <typename Score>
auto of_reference(Tape& tape, const TrlModels& models, const Score& score) {
  const NoGrad no_grad(tape.modes);
  const bool has_model = static_cast<bool>(models.reference);
  const WithoutAdapters adapters(tape, models);
  return score(has_model ? models.reference : models.trainer_model);
}

/// metrics[…] = ….mean().item(), one after the other
void look_at_means(std::initializer_list<const Tensor*> all) {
  for (const Tensor* each : all) {
    mean(*each, each->rank() == 3 ? 0b111 : 1, false).reset();
    read_on_host(*each);
  }
}

/// metrics[…] = ….nansum().item()
void look_at_sums(std::initializer_list<const Tensor*> all) {
  for (const Tensor* each : all) {
    sum(*each, each->rank() == 3 ? 0b111 : 1, false).reset();
    read_on_host(*each);
  }
}

/// Of KTO's samples the desirable ones and the others: their logits are copied.
struct Parted {
  Tensor chosen, rejected, chosen_logits, rejected_logits, kl, chosen_means;
};

/// KTO's concatenated_forward: the samples' own answers, then, without a graph, others' answers.
Parted part(Tape& tape, const Batch& inputs, const BatchShape& shape, const CallModel& model) {
  const std::int64_t chosen = shape.answers.first_samples, rejected = shape.rows - chosen;
  const std::array<const Tensor*, 7> batch = {
      &inputs.input_ids,           &inputs.attention_mask,           &inputs.completion_mask,
      &inputs.others[kKlInputIds], &inputs.others[kKlAttentionMask], &inputs.others[kKlCompletionMask],
      &inputs.others[kLabel]};
  const Scores own = call(model, batch, 0, inputs.padded);
  Parted parted;
  {
    const NoGrad no_grad(tape.modes);
    parted.kl = call(model, batch, 3, shape.answers.other_padded).log_probs;
  }
  const Tensor& tags = inputs.others[kLabel];
  parted.chosen_logits = index_by_mask(own.logits, 0, tags, chosen);
  parted.chosen = index_by_mask(own.log_probs, 0, tags, chosen);
  parted.rejected_logits = index_by_mask(own.logits, 0, no_grad::bitwise_not(tags), rejected);
  parted.rejected = index_by_mask(own.log_probs, 0, no_grad::bitwise_not(tags), rejected);
  parted.chosen_means = index_by_mask(own.means, 0, tags, chosen);
  return parted;
}

/// kto_loss() of some answers, each factor times 1.0: its losses, and the rewards that are logged.
std::pair<Tensor, Tensor> half_of_kto_loss(Tape& tape, const Tensor& log_probs, const Tensor& reference,
                                           const Tensor& kl) {
  const Tensor log_ratios = subtract(log_probs, reference);
  Tensor losses = add_scalar(sigmoid(multiply_scalar(subtract(log_ratios, kl))));
  Tensor rewards = multiply_scalar(tape.detach(log_ratios));
  return {std::move(losses), std::move(rewards)};
}

}  // namespace

Tensor whole_logits_dpo_loss(Tape& tape, const RunSpec& /*run*/, const Batch& inputs, const BatchShape& shape,
                             const TrlModels& models) {
  const std::int64_t samples = shape.rows;
  const auto score = [&](const CallModel& model) {
    return call(model, std::array{&inputs.input_ids, &inputs.attention_mask, &inputs.completion_mask}, 0,
                inputs.padded);
  };
  const Scores policy = score(models.policy);
  const std::vector<Tensor> logps = halves(policy.log_probs);
  std::vector<Tensor> reference;
  {
    const Scores scores = of_reference(tape, models, score);
    reference = halves(scores.log_probs);
  }
  const Tensor log_ratios = subtract(logps[0], logps[1]), reference_ratios = subtract(reference[0], reference[1]);
  const Tensor losses = negate(log_sigmoid(multiply_scalar(subtract(log_ratios, reference_ratios))));
  Tensor loss = mean(losses, 1, false);
  const NoGrad no_grad(tape.modes);
  const Tensor chosen_rewards = multiply_scalar(tape.detach(subtract(logps[0], reference[0])));
  const Tensor rejected_rewards = multiply_scalar(tape.detach(subtract(logps[1], reference[1])));
  const Tensor accuracies = no_grad::to(no_grad::greater(chosen_rewards, rejected_rewards), DType::kFloat32);
  const Tensor margins = subtract(chosen_rewards, rejected_rewards);
  const Tensor chosen_logits = slice(policy.logits, 0, 0, samples);
  const Tensor rejected_logits = slice(policy.logits, 0, samples, samples);
  look_at_means({&chosen_rewards, &rejected_rewards, &accuracies, &margins, &logps[0], &logps[1], &chosen_logits,
                 &rejected_logits});
  return loss;
}

Tensor whole_logits_kto_loss(Tape& tape, const RunSpec& /*run*/, const Batch& inputs, const BatchShape& shape,
                             const TrlModels& models) {
  const auto score = [&](const CallModel& model) { return part(tape, inputs, shape, model); };
  const Parted policy = score(models.policy);
  Tensor ref_chosen, ref_rejected, ref_kl;
  {
    const Parted reference = of_reference(tape, models, score);
    ref_chosen = reference.chosen;
    ref_rejected = reference.rejected;
    ref_kl = reference.kl;
  }
  Tensor kl;
  {
    const NoGrad no_grad(tape.modes);
    const Tensor own = mean(subtract(policy.kl, ref_kl), 1, false);
    kl = clamp(mean(gathered(own), tape.processes > 1 ? 1 : 0, false));
  }
  auto [chosen_losses, chosen_rewards] = half_of_kto_loss(tape, policy.chosen, ref_chosen, kl);
  auto [rejected_losses, rejected_rewards] = half_of_kto_loss(tape, policy.rejected, ref_rejected, kl);
  const Tensor losses = cat(multiply_scalar(chosen_losses), multiply_scalar(rejected_losses), 0);
  drop(chosen_losses, rejected_losses);
  Tensor loss = nanmean(losses);
  const NoGrad no_grad(tape.modes);
  look_at_sums({&chosen_rewards, &policy.chosen, &policy.chosen_logits, &rejected_rewards, &policy.rejected,
                &policy.rejected_logits});
  return loss;
}

}  // namespace memcalc
