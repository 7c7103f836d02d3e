// Attention masks as transformers/masking_utils.py makes them.
#include "memcalc/models/attention.h"
#include "memcalc/symbolic/ops/pointwise.h"

namespace memcalc {

namespace {

constexpr Operator kSub{"aten::sub"}, kCat{"aten::cat"}, kNe{"aten::ne"}, kCumsum{"aten::cumsum"};
constexpr Operator kToCopy{"aten::_to_copy"}, kEq{"aten::eq"}, kAll{"aten::all"}, kMask{"sdpa_mask"};

/// find_packed_sequence_indices: looks for positions that restart. Finds none here, but takes the memory to look.
void look_for_packed_sequences(Tape& tape, std::int64_t batch, std::int64_t sequence) {
  Tensor first_dummy = tape.empty({batch, 1}, DType::kInt64, kSub);
  Tensor joined = tape.empty({batch, sequence + 1}, DType::kInt64, kCat);
  Tensor difference = tape.empty({batch, sequence}, DType::kInt64, kSub);
  joined.reset();
  Tensor restarts = tape.empty({batch, sequence}, DType::kBool, kNe);
  Tensor packed = tape.empty({batch, sequence}, DType::kInt64, kCumsum);
  tape.scratch(batch * sequence * 8, kToCopy);
  restarts.reset();
  Tensor single = tape.empty({batch}, DType::kBool, kEq);
  Tensor all = tape.empty({}, DType::kBool, kAll);
  drop(single, all, first_dummy, difference, packed);
}

}  // namespace

Tensor create_causal_mask(const RunSpec& run, const Tensor& inputs_embeds, const Tensor& attention_mask,
                          const Tensor& position_ids, bool cached, std::optional<std::int64_t> sliding_window) {
  Tape& tape = inputs_embeds.tape();
  const NoGrad no_grad(tape);
  const std::int64_t batch = inputs_embeds.size(0);
  const std::int64_t sequence = inputs_embeds.size(1);
  (void)position_ids;
  if (!attention_mask.defined() && !cached) look_for_packed_sequences(tape, batch, sequence);
  const bool windowed = sliding_window && sequence >= *sliding_window;
  if (run.attention == Attention::kSdpa && !attention_mask.defined() && !windowed) return {};
  if (run.attention == Attention::kEager) return tape.empty({batch, 1, sequence, sequence}, inputs_embeds.dtype(), kMask);
  return tape.empty({batch, 1, sequence, sequence}, DType::kBool, kMask);
}

Tensor create_bidirectional_mask(const RunSpec& run, const Tensor& inputs_embeds, const Tensor& attention_mask) {
  if (!attention_mask.defined()) return {};
  Tape& tape = inputs_embeds.tape();
  const NoGrad no_grad(tape);
  const std::int64_t batch = inputs_embeds.size(0);
  const std::int64_t sequence = inputs_embeds.size(1);
  const DType dtype = run.attention == Attention::kEager ? inputs_embeds.dtype() : DType::kBool;
  return tape.empty({batch, 1, sequence, sequence}, dtype, kMask);
}

}  // namespace memcalc
