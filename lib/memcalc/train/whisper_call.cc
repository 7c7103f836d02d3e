#include "memcalc/train/whisper_call.h"

#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/integer.h"

namespace memcalc {

WhisperCall::WhisperCall(Tape& tape, const Batch& inputs, WhisperTokens tokens)
    : tape_(tape), tokens_(tokens), init_tokens_(no_grad::from_list(tape, {1, tokens.start})), batch_(inputs) {
  if (tokens.never > 0) suppressed_ = no_grad::from_list(tape, {tokens.never});
  suppressed_at_begin_ = no_grad::from_list(tape, {tokens.never_first});
  // _get_input_segment: torch.cat of the rows. _prepare_decoder_input_ids: init_tokens[batch_idx_map].
  const Shape& shape = inputs.input_features.shape();
  batch_.input_features = tape.empty(shape, inputs.input_features.dtype(), aten::kCat, Category::kActivations);
  const std::int64_t rows = shape[0];
  const Tensor places = no_grad::from_list(tape, {rows});
  batch_.decoder_input_ids = tape.empty({rows, tokens.start}, DType::kInt64, aten::kIndex);
}

void WhisperCall::add_to(GenerationCall& call) const {
  call.suppressed = suppressed_;
  call.suppressed_at_begin = suppressed_at_begin_;
}

Tensor WhisperCall::result(const Tensor& ids) const {
  const std::int64_t rows = ids.size(0), added = ids.size(1) - tokens_.start;
  std::vector<Tensor> sequences;
  for (std::int64_t i = 0; i < rows; ++i) sequences.push_back(tape_.empty({added}, DType::kInt64, aten::kCat));
  return tape_.empty({rows, added}, DType::kInt64, aten::kStack);
}

}  // namespace memcalc
