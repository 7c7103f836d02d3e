// MIRRORS(trl, "trainer/sft_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/utils.py", "1.16.0")
#include <algorithm>
#include <vector>

#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/concatenate.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/train/gather.h"
#include "memcalc/train/label_smoother.h"
#include "memcalc/train/trl/losses.h"
#include "memcalc/train/trl/metrics.h"

namespace memcalc {

namespace {

/// trainer/utils.py, entropy_from_logits: 128 rows at a time.
Tensor entropy_from_logits(const Tensor& logits) {
  constexpr std::int64_t kChunk = 128;
  const std::int64_t words = logits.size(-1);
  const Tensor flat = reshape(logits, {-1, words});
  const std::int64_t rows = flat.size(0);
  std::vector<Tensor> entropies;
  Tensor logps, chunk_entropy;
  for (std::int64_t first = 0; first < rows; first += kChunk) {
    logps = log_softmax(slice(flat, 0, first, std::min(kChunk, rows - first)));
    {
      const Tensor product = multiply(exponential(logps), logps);
      chunk_entropy = negate(sum(product, 0b10, false));
    }
    entropies.push_back(chunk_entropy);
  }
  drop(logps, chunk_entropy);
  Tensor whole = concatenate(entropies, 0);
  for (Tensor& each : entropies) each.reset();
  return whole;
}

/// The model's own loss; average_tokens_across_devices: by the number of processes.
Tensor own_loss(const Batch& inputs, const ModelOutput& outputs) {
  return inputs.number_of_items.defined() ? multiply_in_place(outputs.loss) : outputs.loss;
}

/// Training counts tokens: by the mask, or without one by torch.tensor(position_ids.size(1), device=…), which is
/// returned.
Tensor look_at_tokens(Tape& tape, const Batch& inputs) {
  if (!tape.modes.training) return {};
  if (inputs.attention_mask.defined()) {
    look_at_sum(inputs.attention_mask);
    return {};
  }
  Tensor local_num_tokens = no_grad::from_list(tape, {});
  look_at_sum(local_num_tokens);
  return local_num_tokens;
}

/// TRL before 1.3: the model's own loss, and metrics of its logits.
Tensor loss_of_logits(Tape& tape, const Batch& inputs, const TrlModels& models) {
  ModelOutput outputs = models.policy(inputs);
  Tensor loss = own_loss(inputs, outputs);
  const NoGrad no_grad(tape.modes);
  const Tensor logits = tape.detach(outputs.logits);
  const std::int64_t rows = inputs.labels.size(0), columns = inputs.labels.size(1);
  Tensor per_token_entropy = no_grad::view(entropy_from_logits(logits), {rows, columns});
  Tensor entropy;
  if (inputs.attention_mask.defined()) {
    const Tensor total = sum_all(multiply(per_token_entropy, inputs.attention_mask));
    entropy = divide(total, no_grad::sum(inputs.attention_mask));
  } else {
    entropy = mean(view(per_token_entropy, {-1}), 1, false);
  }
  look_at(entropy);
  Tensor local_num_tokens = look_at_tokens(tape, inputs);
  Tensor shift_logits = contiguous(slice(logits, 1, 0, columns - 1));
  Tensor shift_labels = no_grad::clone(no_grad::slice(inputs.labels, 1, 1, columns - 1));
  Tensor predictions = no_grad::argmax_last(shift_logits);
  Tensor mask = no_grad::not_equal(shift_labels);
  Tensor correct_predictions = no_grad::bitwise_and(no_grad::equal(predictions, shift_labels), mask);
  Tensor total_tokens = gathered_sum(mask), correct_tokens = gathered_sum(correct_predictions);
  look_at_mean(correct_tokens, total_tokens);
  outputs.clear();
  drop(per_token_entropy, entropy, local_num_tokens, shift_logits, shift_labels, predictions, mask);
  drop(correct_predictions, total_tokens, correct_tokens);
  return loss;
}

/// How many labels and which predictions are right, of logits and labels that are shifted.
struct Accuracy {
  Tensor mask, total_tokens, correct_tokens;
};

Accuracy accuracy_of(const Tensor& shift_logits, const Tensor& shift_labels) {
  Accuracy accuracy;
  const Tensor predictions = no_grad::argmax_last(shift_logits);
  accuracy.mask = no_grad::not_equal(shift_labels);
  const Tensor correct = no_grad::bitwise_and(no_grad::equal(predictions, shift_labels), accuracy.mask);
  accuracy.total_tokens = no_grad::sum(accuracy.mask);
  accuracy.correct_tokens = no_grad::sum(correct);
  return accuracy;
}

/// accelerator.gather_for_metrics(x).sum() of a scalar.
Tensor sum_of_gathered(const Tensor& x) {
  const Tensor all = gathered(x);
  return is_floating(x.dtype()) ? sum_all(all) : no_grad::sum(all);
}

/// TRL 1.3 to 1.6: metrics of shifted logits; up to 1.5 they are copied twice, once for the entropy and once for the
/// accuracy.
Tensor loss_of_shifted_logits(Tape& tape, const Batch& inputs, const TrlModels& models) {
  const bool copies = tape.behaviors.sft_loss == SftLossForm::kShiftedCopies;
  ModelOutput outputs = models.policy(inputs);
  Tensor loss = own_loss(inputs, outputs);
  const NoGrad no_grad(tape.modes);
  const Tensor logits = tape.detach(outputs.logits);
  const std::int64_t rows = inputs.labels.size(0), columns = inputs.labels.size(1) - 1;
  Tensor shift_logits, shift_labels;
  const auto shift = [&] {
    Tensor view_of_logits = slice(logits, 1, 0, columns);
    shift_logits = copies ? contiguous(view_of_logits) : view_of_logits;
    Tensor view_of_labels = no_grad::slice(inputs.labels, 1, 1, columns);
    shift_labels = copies ? no_grad::clone(view_of_labels) : view_of_labels;
  };
  shift();
  Tensor per_token_entropy = no_grad::view(entropy_from_logits(shift_logits), {rows, columns});
  Accuracy accuracy;
  if (!copies) accuracy = accuracy_of(shift_logits, shift_labels);
  const Tensor mask = copies ? no_grad::not_equal(shift_labels) : accuracy.mask;
  Tensor entropy_sum = sum_all(multiply(per_token_entropy, mask));
  Tensor total_tokens = copies ? no_grad::sum(mask) : accuracy.total_tokens;
  entropy_sum = sum_of_gathered(entropy_sum);
  total_tokens = sum_of_gathered(total_tokens);
  look_at_mean(entropy_sum, total_tokens);
  const auto look_at_accuracy = [&] {
    const Tensor correct = sum_of_gathered(accuracy.correct_tokens);
    look_at_mean(correct, sum_of_gathered(accuracy.total_tokens));
  };
  if (!copies) look_at_accuracy();
  Tensor local_num_tokens = look_at_tokens(tape, inputs);
  if (copies) {
    shift();
    accuracy = accuracy_of(shift_logits, shift_labels);
    look_at_accuracy();
  }
  outputs.clear();
  drop(per_token_entropy, entropy_sum, total_tokens, local_num_tokens, shift_logits, shift_labels);
  return loss;
}

/// Labels of a batch, shifted by one, that are not -100.
std::int64_t targets_of(const RunSpec& run, const Batch& inputs) {
  const std::int64_t rows = inputs.input_ids.size(0), columns = inputs.input_ids.size(1);
  if (const std::int64_t answer = run.training().completion_length; answer > 0) return rows * answer;
  if (run.training().lengths && !run.training().lengths->samples->prompts.empty()) return inputs.valid_labels;
  // The first label of each row is nobody's next token. Where several sequences stand in it, it has none.
  const std::int64_t first_labels = inputs.sequences > 0 ? 0 : rows;
  return inputs.valid_labels > 0 ? inputs.valid_labels - first_labels : rows * (columns - 1);
}

/// Variables of compute_loss, which looks at entropy, accuracy and the number of tokens.
struct TokenMetrics {
  Tensor num_valid, entropy_sum, num_correct, local_num_tokens;

  void look(Tape& tape, const Batch& inputs, const FusedHead& fused) {
    num_valid = gathered_sum(fused.label_mask);
    entropy_sum = gathered_sum(tape.detach(fused.entropy));
    num_correct = gathered_sum(fused.is_top1);
    look_at_mean(entropy_sum, num_valid);
    look_at_mean(num_correct, num_valid);
    local_num_tokens = look_at_tokens(tape, inputs);
  }
  void clear() { drop(num_valid, entropy_sum, num_correct, local_num_tokens); }
};

/// With label_smoothing_factor: of the model's own logits. A second forward pass, without gradients, is for the
/// metrics.
Tensor loss_of_smoothed_labels(Tape& tape, const Batch& fused_batch, const Batch& inputs, const TrlModels& models) {
  Tensor loss;
  {
    Batch plain = inputs;
    plain.labels.reset();
    const ModelOutput outputs = models.policy(plain);
    loss = smoothed_loss(outputs.logits, inputs.labels, inputs.number_of_items, true);
  }
  ModelOutput outputs;
  {
    const NoGrad no_grad(tape.modes);
    outputs = models.policy(fused_batch);
  }
  if (inputs.number_of_items.defined()) loss = multiply_scalar(loss);
  TokenMetrics metrics;
  metrics.look(tape, inputs, outputs.fused);
  outputs.clear();
  metrics.clear();
  return loss;
}

/// TRL 1.7 to 1.14: the loss is the model's own, of chunks; the sums of its metrics are there already.
Tensor loss_of_chunks(Tape& tape, const RunSpec& run, const Batch& inputs, const TrlModels& models) {
  Batch batch = inputs;
  const FusedHeadCall head{.outputs = {}, .targets = targets_of(run, inputs)};
  batch.fused_head = &head;
  ModelOutput outputs = models.policy(batch);
  Tensor loss = own_loss(inputs, outputs);
  const NoGrad no_grad(tape.modes);
  Tensor num_valid = sum_of_gathered(outputs.fused.label_mask);
  Tensor entropy_sum = sum_of_gathered(tape.detach(outputs.fused.entropy));
  look_at_mean(entropy_sum, num_valid);
  Tensor local_num_tokens = look_at_tokens(tape, inputs);
  Tensor correct = sum_of_gathered(outputs.fused.is_top1);
  look_at_mean(correct, num_valid);
  outputs.clear();
  drop(num_valid, entropy_sum, local_num_tokens, correct);
  return loss;
}

}  // namespace

Tensor sft_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const TrlModels& models) {
  if (run.fine_tuning.unsloth) {  // the model's own loss; UnslothSFTTrainer looks at nothing beside it
    ModelOutput outputs = models.policy(inputs);
    return multiply_scalar(std::move(outputs.loss));
  }
  const SftLossForm form = tape.behaviors.sft_loss;
  if (form == SftLossForm::kLogits) return loss_of_logits(tape, inputs, models);
  if (form == SftLossForm::kShiftedCopies || form == SftLossForm::kShiftedViews) {
    return loss_of_shifted_logits(tape, inputs, models);
  }
  if (form != SftLossForm::kFusedHead) return loss_of_chunks(tape, run, inputs, models);
  Batch batch = inputs;
  const FusedHeadCall head{.outputs = {.entropy = true, .is_top1 = true},
                           .targets = targets_of(run, inputs),
                           .balances_experts = run.training().balances_experts};
  batch.fused_head = &head;
  if (run.training().smooths_labels) return loss_of_smoothed_labels(tape, batch, inputs, models);
  ModelOutput outputs = models.policy(batch);
  const FusedHead& fused = outputs.fused;
  Tensor per_token_loss = negate(fused.log_probs);
  if (run.training().sft_loss == SftLoss::kDft) {
    per_token_loss = multiply(per_token_loss, tape.detach(exponential(fused.log_probs)));
  }
  const bool counted = inputs.number_of_items.defined();
  Tensor num_tokens = counted ? inputs.number_of_items : no_grad::sum(fused.label_mask);
  Tensor loss = divide(sum(per_token_loss, 0b11, false), no_grad::clamp(num_tokens));
  Tensor weighted_aux_loss;
  if (head.balances_experts) weighted_aux_loss = multiply_scalar(fused.aux_loss);
  if (counted) loss = multiply_scalar(loss);  // average_tokens_across_devices: by the number of processes
  if (head.balances_experts) loss = add(loss, divide_scalar(weighted_aux_loss));
  TokenMetrics metrics;
  metrics.look(tape, inputs, fused);
  if (head.balances_experts) look_at(fused.aux_loss);
  outputs.clear();
  drop(per_token_loss, num_tokens, weighted_aux_loss);
  metrics.clear();
  return loss;
}

}  // namespace memcalc
