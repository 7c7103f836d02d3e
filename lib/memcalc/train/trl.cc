#include "memcalc/train/trl.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"

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

}  // namespace

Tensor sft_loss(Tape& tape, const RunSpec& run, const Batch& inputs, const CallModel& call_model) {
  Batch batch = inputs;
  batch.padded = run.padding;
  const FusedHeadCall head{.outputs = {.entropy = true, .is_top1 = true},
                           .targets = run.batch_size * (run.sequence_length - 1)};
  batch.fused_head = &head;
  ModelOutput outputs = call_model(batch);
  const FusedHead& fused = outputs.fused;
  Tensor per_token_loss = negate(fused.log_probs);
  Tensor loss = divide(sum(per_token_loss, 0b11, false), no_grad::clamp(inputs.number_of_items));
  loss = multiply_scalar(loss);  // average_tokens_across_devices: by the number of processes
  Tensor num_valid = gathered_sum(fused.label_mask);
  Tensor entropy_sum = gathered_sum(tape.detach(fused.entropy));
  Tensor num_correct = gathered_sum(fused.is_top1);
  look_at_mean(entropy_sum, num_valid);
  look_at_mean(num_correct, num_valid);
  gathered_sum(inputs.attention_mask).reset();
  tape.kernels.synchronize(aten::kItem);
  outputs.clear();
  drop(per_token_loss, num_valid, entropy_sum, num_correct);
  return loss;
}

}  // namespace memcalc
