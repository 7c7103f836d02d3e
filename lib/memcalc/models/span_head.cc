#include "memcalc/models/span_head.h"

#include <vector>

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

void predict_spans(const Linear& head, Tensor& hidden_states, const Batch& batch, ModelOutput& output, SpanLoss loss) {
  Tensor logits = head(hidden_states);
  {
    const std::vector<Tensor> parts = split(logits, 2, 2);
    output.logits = contiguous(squeeze(parts[0], 2));
    output.others.push_back(contiguous(squeeze(parts[1], 2)));
  }
  // QuestionAnsweringModelOutput has no cache: that of the backbone's output dies with it.
  if (!batch.labels.defined()) {
    output.past_key_values.clear();
    return drop(hidden_states, logits);
  }
  // loss_utils.py, ForQuestionAnsweringLoss
  Tensor start_positions = no_grad::clamp(batch.labels);
  Tensor end_positions = no_grad::clamp(batch.others.front());
  Tensor start_loss = cross_entropy(output.logits, start_positions);
  Tensor end_loss = cross_entropy(output.others.back(), end_positions);
  output.loss = divide_scalar(add(start_loss, end_loss));
  if (loss == SpanLoss::kByFunction) drop(start_positions, end_positions, start_loss, end_loss);
  drop(start_positions, end_positions);
  output.past_key_values.clear();
  drop(hidden_states, logits, start_loss, end_loss);
}

}  // namespace memcalc
