#include "memcalc/models/sequence_classifier.h"

#include <string>

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

Tensor SequenceClassifier::scored(const Tensor& hidden_states) const {
  if (!hidden_.weight.defined()) return score_(hidden_states);
  Tensor input = hidden_(hidden_states);
  input = relu(input);
  return score_(input);
}

void SequenceClassifier::forward(Tensor& hidden_states, const Batch& batch, ModelOutput& output) const {
  Tensor logits = scored(hidden_states);
  Tape& tape = logits.tape();
  Tensor non_pad_mask = no_grad::to(no_grad::not_equal(batch.input_ids), DType::kInt32);
  Tensor token_indices = no_grad::arange(tape, batch.input_ids.size(1), DType::kInt32);
  Tensor last_non_pad_token = argmax_last(no_grad::multiply(token_indices, non_pad_mask));
  output.logits = index_pairs(logits, no_grad::arange(tape, batch.input_ids.size(0)), last_non_pad_token);
  if (batch.labels.defined()) {
    output.loss = cross_entropy(view(output.logits, {-1, output.logits.size(-1)}), view(batch.labels, {-1}));
  }
  drop(hidden_states, logits, last_non_pad_token, non_pad_mask, token_indices);
}

}  // namespace memcalc
