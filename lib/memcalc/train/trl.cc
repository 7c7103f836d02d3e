#include "memcalc/train/trl.h"

#include <array>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// accelerator.gather_for_metrics(x.sum()).sum() of one process.
Tensor gathered_sum(const Tensor& x) {
  const NoGrad no_grad(x.tape().modes);
  if (is_floating(x.dtype())) return sum_all(sum_all(x));
  return no_grad::sum(no_grad::sum(x));
}

/// (sum / count).item() if count > 0 else 0.0
void look_at_mean(const Tensor& sum, const Tensor& count) {
  Tape& tape = sum.tape();
  no_grad::greater(count).reset();
  tape.kernels.synchronize(aten::kGt);
  no_grad::divide(sum, count).reset();
  tape.kernels.synchronize(aten::kItem);
}

/// x.chunk(2, dim=0)
std::vector<Tensor> halves(const Tensor& x) { return split(x, 0, 2); }

/// A metric: accelerator.gather(x).mean().item()
void look_at(const Tensor& x) {
  mean(x, 1, false).reset();
  x.tape().kernels.synchronize(aten::kItem);
}

/// What DPOTrainer logs of a step beside its loss: entropy, tokens, mean logits, accuracies, rewards, margins.
void look_at_preferences(const FusedHead& fused, const Batch& inputs, const std::array<Tensor, 4>& of_answers,
                         std::int64_t samples, std::int64_t answer_tokens) {
  Tape& tape = inputs.input_ids.tape();
  const NoGrad no_grad(tape.modes);
  const auto& [chosen_logps, rejected_logps, chosen_logratios, rejected_logratios] = of_answers;
  const Tensor mask = no_grad::slice(inputs.completion_mask, 1, 1, inputs.completion_mask.size(1) - 1);
  const Tensor chosen_mask = no_grad::slice(mask, 0, 0, samples),
               rejected_mask = no_grad::slice(mask, 0, samples, samples);
  {
    Tensor entropy_sum = sum_all(no_grad::multiply(fused.entropy, mask));
    const Tensor total_tokens = no_grad::sum(no_grad::sum(mask));
    entropy_sum = sum_all(entropy_sum);
    look_at_mean(entropy_sum, total_tokens);
  }
  gathered_sum(inputs.attention_mask).reset();
  tape.kernels.synchronize(aten::kItem);
  for (const auto& [part, start] : {std::pair(&chosen_mask, std::int64_t{0}), std::pair(&rejected_mask, samples)}) {
    const Tensor logits = no_grad::slice(fused.mean_logits, 0, start, samples);
    sum_all(index_by_mask(logits, 0, no_grad::to(*part, DType::kBool), answer_tokens)).reset();
    gathered_sum(*part).reset();
    tape.kernels.synchronize(aten::kItem);
  }
  {
    const Tensor correct =
        no_grad::bitwise_and(no_grad::slice(fused.is_top1, 0, 0, samples), no_grad::to(chosen_mask, DType::kBool));
    const Tensor total = no_grad::sum(chosen_mask), right = no_grad::sum(correct);
    look_at_mean(no_grad::sum(right), no_grad::sum(total));
  }
  const Tensor chosen_rewards = multiply_scalar(tape.detach(chosen_logratios));
  const Tensor rejected_rewards = multiply_scalar(tape.detach(rejected_logratios));
  look_at(chosen_rewards);
  look_at(rejected_rewards);
  look_at(no_grad::to(no_grad::greater(chosen_rewards, rejected_rewards), DType::kFloat32));
  look_at(subtract(chosen_rewards, rejected_rewards));
  look_at(chosen_logps);
  look_at(rejected_logps);
}

}  // namespace

Tensor sft_loss(Tape& tape, const Batch& inputs, const CallModel& call_model) {
  Batch batch = inputs;
  const std::int64_t rows = inputs.input_ids.size(0), columns = inputs.input_ids.size(1);
  // The first label of each sequence is nobody's next token.
  const std::int64_t targets = inputs.valid_labels > 0 ? inputs.valid_labels - rows : rows * (columns - 1);
  const FusedHeadCall head{.outputs = {.entropy = true, .is_top1 = true}, .targets = targets};
  batch.fused_head = &head;
  ModelOutput outputs = call_model(batch);
  const FusedHead& fused = outputs.fused;
  Tensor per_token_loss = negate(fused.log_probs);
  const bool counted = inputs.number_of_items.defined();
  Tensor num_tokens = counted ? inputs.number_of_items : no_grad::sum(fused.label_mask);
  Tensor loss = divide(sum(per_token_loss, 0b11, false), no_grad::clamp(num_tokens));
  if (counted) loss = multiply_scalar(loss);  // average_tokens_across_devices: by the number of processes
  Tensor num_valid = gathered_sum(fused.label_mask);
  Tensor entropy_sum = gathered_sum(tape.detach(fused.entropy));
  Tensor num_correct = gathered_sum(fused.is_top1);
  look_at_mean(entropy_sum, num_valid);
  look_at_mean(num_correct, num_valid);
  gathered_sum(inputs.attention_mask).reset();
  tape.kernels.synchronize(aten::kItem);
  outputs.clear();
  drop(per_token_loss, num_tokens, num_valid, entropy_sum, num_correct);
  return loss;
}

Tensor dpo_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const CallModel& call_model) {
  const std::int64_t samples = inputs.input_ids.size(0) / 2;
  const FusedHeadCall head{.outputs = {.entropy = true, .mean_logits = true, .is_top1 = true},
                           .targets = 2 * samples * run.training().completion_length};
  Batch batch = inputs;
  batch.padded = run.padding;
  batch.fused_head = &head;
  // inputs["input_ids"].masked_fill(completion_mask == 0, -100)
  batch.labels = no_grad::masked_fill(inputs.input_ids, no_grad::equal(inputs.completion_mask));
  ModelOutput outputs = call_model(batch);
  const std::vector<Tensor> logps = halves(sum(outputs.fused.log_probs, 0b10, false));
  std::vector<Tensor> reference;
  ModelOutput ref_outputs;
  {
    const NoGrad no_grad(tape.modes);
    const Scoped adapters(tape.modes.adapters_disabled, true);
    ref_outputs = call_model(batch);
    reference = halves(sum(ref_outputs.fused.log_probs, 0b10, false));
  }
  Tensor chosen_logratios = subtract(logps[0], reference[0]);
  Tensor rejected_logratios = subtract(logps[1], reference[1]);
  Tensor delta_score = subtract(chosen_logratios, rejected_logratios);
  Tensor per_sequence_loss = negate(log_sigmoid(multiply_scalar(delta_score)));
  Tensor loss = add_scalar(multiply_scalar(mean(per_sequence_loss, 1, false)));  // loss = 0.0; loss += …
  look_at_preferences(outputs.fused, inputs, {logps[0], logps[1], chosen_logratios, rejected_logratios}, samples,
                      head.targets / 2);
  batch.labels.reset();
  outputs.clear();
  ref_outputs.clear();
  return loss;
}

Tensor trl_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const CallModel& call_model) {
  return run.trains_on_pairs() ? dpo_loss(tape, run, inputs, call_model) : sft_loss(tape, inputs, call_model);
}

}  // namespace memcalc
