#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/train/gather.h"
#include "memcalc/train/trl/losses.h"
#include "memcalc/train/trl/metrics.h"

namespace memcalc {

Tensor sft_loss(Tape& tape, const Batch& inputs, const TrlModels& models) {
  Batch batch = inputs;
  const std::int64_t rows = inputs.input_ids.size(0), columns = inputs.input_ids.size(1);
  // The first label of each row is nobody's next token. Where several sequences stand in it, it has none.
  const std::int64_t first_labels = inputs.sequences > 0 ? 0 : rows;
  const std::int64_t targets = inputs.valid_labels > 0 ? inputs.valid_labels - first_labels : rows * (columns - 1);
  const FusedHeadCall head{.outputs = {.entropy = true, .is_top1 = true}, .targets = targets};
  batch.fused_head = &head;
  ModelOutput outputs = models.policy(batch);
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
  Tensor local_num_tokens;
  if (tape.modes.training) {
    // Without a mask: torch.tensor(position_ids.size(1), device=…)
    if (!inputs.attention_mask.defined()) local_num_tokens = no_grad::from_list(tape, {});
    look_at_sum(inputs.attention_mask.defined() ? inputs.attention_mask : local_num_tokens);
  }
  outputs.clear();
  drop(per_token_loss, num_tokens, num_valid, entropy_sum, num_correct, local_num_tokens);
  return loss;
}

}  // namespace memcalc
