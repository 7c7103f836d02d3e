#include "memcalc/models/sequence_classifier.h"

#include <string>

#include "memcalc/models/attention.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr Operator kNe{"aten::ne"}, kToCopy{"aten::_to_copy"}, kArange{"aten::arange"}, kMul{"aten::mul"};

}  // namespace

void SequenceClassifier::forward(const Tensor& hidden_states, const Batch& batch, ModelOutput& output) const {
  Tensor logits = score_(hidden_states);
  Tape& tape = logits.tape();
  const Shape ids = batch.input_ids.shape();
  Tensor non_pad_mask;
  {
    const Tensor not_padding = tape.empty(ids, DType::kBool, kNe);
    non_pad_mask = tape.empty(ids, DType::kInt32, kToCopy);
  }
  Tensor token_indices = tape.empty({ids[1]}, DType::kInt32, kArange);
  Tensor last_non_pad_token = argmax_last(tape.empty(ids, DType::kInt32, kMul));
  output.logits = index_pairs(logits, tape.empty({ids[0]}, DType::kInt64, kArange), last_non_pad_token);
  if (batch.labels.defined()) {
    output.loss = cross_entropy(view(output.logits, {-1, output.logits.size(-1)}), view(batch.labels, {-1}));
  }
  drop(logits, last_non_pad_token, non_pad_mask, token_indices);
}

void predict(const std::optional<SequenceClassifier>& classifier, const Linear& lm_head, const Tensor& hidden_states,
             const Batch& batch, ModelOutput& output) {
  if (classifier) {
    classifier->forward(hidden_states, batch, output);
    return;
  }
  output.logits = lm_head(kept_positions(hidden_states, batch));
  if (batch.labels.defined()) {
    output.loss = causal_lm_loss(output.logits, batch.labels, batch.number_of_items);
  }
}

}  // namespace memcalc
