// Attention masks as transformers/masking_utils.py makes them: booleans for SDPA, numbers for eager attention. That
// the batch holds padding is what --padding says; the framework looks at the data.
#include <algorithm>
#include <utility>

#include "memcalc/models/attention.h"
#include "memcalc/symbolic/ops/cub.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

constexpr Operator kSub{"aten::sub"}, kCat{"aten::cat"}, kNe{"aten::ne"}, kCumsum{"aten::cumsum"};
constexpr Operator kToCopy{"aten::_to_copy"}, kEq{"aten::eq"}, kAll{"aten::all"}, kArange{"aten::arange"};
constexpr Operator kAdd{"aten::add"}, kNewOnes{"aten::new_ones"}, kCompare{"aten::le"}, kAnd{"aten::bitwise_and"};
constexpr Operator kClone{"aten::clone"}, kIndex{"aten::index"}, kWhere{"aten::where"};
constexpr Operator kScalarTensor{"aten::scalar_tensor"};

/// find_packed_sequence_indices: looks for positions that restart. There are none, but looking takes memory, and Python
/// waits for the answer: `if (packed_sequence_mask[:, -1] == 0).all()`.
void look_for_packed_sequences(Tape& tape, std::int64_t batch, std::int64_t sequence) {
  Tensor first_dummy = tape.empty({batch, 1}, DType::kInt64, kSub);
  Tensor joined = tape.empty({batch, sequence + 1}, DType::kInt64, kCat);
  Tensor difference = tape.empty({batch, sequence}, DType::kInt64, kSub);
  joined.reset();
  Tensor restarts = tape.empty({batch, sequence}, DType::kBool, kNe);
  Tensor packed = tape.empty({batch, sequence}, DType::kInt64, kCumsum);
  {
    const Tensor converted = tape.empty({batch, sequence}, DType::kInt64, kToCopy);
    if (batch == 1) tape.memory.scratch(scan_bytes(sequence), kCumsum);
  }
  restarts.reset();
  Tensor single = tape.empty({batch}, DType::kBool, kEq);
  Tensor all = tape.empty({}, DType::kBool, kAll);
  if (tape.modes.capture == nullptr) tape.kernels.synchronize(kAll);
  drop(single, all, first_dummy, difference, packed);
}

/// fast_all: mask.sum() == mask.numel(), which Python waits for.
void fast_all(const Tensor& mask) {
  Tensor counted = count(mask);
  Tensor equal = mask.tape().empty({}, DType::kBool, kEq);
  mask.tape().kernels.synchronize(kEq);
  drop(counted, equal);
}

Tensor range(Tape& tape, std::int64_t length) { return tape.empty({length}, DType::kInt64, kArange); }

/// arange(length) + offset
Tensor shifted_range(Tape& tape, std::int64_t length) {
  const Tensor unshifted = range(tape, length);
  return tape.empty({length}, DType::kInt64, kAdd);
}

struct Pattern {
  Shape shape;          // of the pattern over [1, 1, queries, keys], before padding
  int comparisons = 1;  // a sliding window compares twice
};

/// and_masks: starts from a single true and combines one function's mask after the other.
class Conjunction {
 public:
  explicit Conjunction(Tape& tape) : tape_(tape), mask_(tape.empty({}, DType::kBool, kNewOnes)) {}

  void combine(Tensor other, const Shape& shape) {
    Tensor both = tape_.empty(shape, DType::kBool, kAnd);
    drop(other, mask_);
    mask_ = std::move(both);
  }
  [[nodiscard]] Tensor take() { return std::move(mask_); }

 private:
  Tape& tape_;
  Tensor mask_;
};

/// causal_mask_function, or with a window the conjunction of its two halves.
Tensor pattern_mask(Tape& tape, const Pattern& pattern) {
  if (pattern.comparisons == 1) return tape.empty(pattern.shape, DType::kBool, kCompare);
  Conjunction all(tape);
  for (int i = 0; i < pattern.comparisons; ++i) {
    Tensor compared;
    if (i == 0) {  // sliding_window_overlay: keys > queries - window
      const Tensor first_key = tape.empty({pattern.shape[2]}, DType::kInt64, kSub);
      compared = tape.empty(pattern.shape, DType::kBool, kCompare);
    } else {
      compared = tape.empty(pattern.shape, DType::kBool, kCompare);
    }
    all.combine(std::move(compared), pattern.shape);
  }
  return all.take();
}

/// padding_mask_function: padding[batch index, key index].
Tensor padding_mask(Tape& tape, std::int64_t batch, std::int64_t keys) {
  const Shape shape{batch, 1, 1, keys};
  Tensor batch_index = tape.empty(shape, DType::kInt64, kClone);
  Tensor key_index = tape.empty(shape, DType::kInt64, kClone);
  Tensor mask = tape.empty(shape, DType::kBool, kIndex);
  drop(batch_index, key_index);
  return mask;
}

/// sdpa_mask: the pattern and, where there is padding, the tokens that are none; [batch, 1, queries, keys].
Tensor boolean_mask(Tape& tape, const Shape& shape, const Pattern& pattern, bool padded) {
  const std::int64_t batch = shape[0];
  const std::int64_t keys = shape[3];
  Tensor batch_range = range(tape, batch);
  Tensor head_range = range(tape, 1);
  Tensor query_range = shifted_range(tape, shape[2]);
  Tensor key_range = shifted_range(tape, keys);
  Tensor mask;
  if (padded) {
    Conjunction all(tape);
    all.combine(pattern_mask(tape, pattern), pattern.shape);
    all.combine(padding_mask(tape, batch, keys), shape);
    mask = all.take();
  } else {
    mask = pattern_mask(tape, pattern);
  }
  mask = expand(mask, shape);
  drop(batch_range, head_range, query_range, key_range);
  return mask;
}

/// eager_mask: 0 where attention is allowed, the type's lowest number elsewhere.
Tensor additive_mask(const Tensor& allowed, DType dtype) {
  Tape& tape = allowed.tape();
  Tensor lowest = tape.empty({}, dtype, kScalarTensor);
  Tensor zero = tape.empty({}, dtype, kScalarTensor);
  Tensor mask = tape.empty(allowed.shape(), dtype, kWhere);
  drop(zero, lowest);
  return mask;
}

Tensor boolean_padding(const Tensor& attention_mask) {
  if (!attention_mask.defined()) return {};
  return attention_mask.tape().empty(attention_mask.shape(), DType::kBool, kToCopy);
}

}  // namespace

namespace {

/// get_mask_sizes: how many keys the queries meet. A sliding layer has kept the window's.
std::int64_t keys_of(std::int64_t queries, const PastTokens& past, std::optional<std::int64_t> window) {
  return queries + (window ? std::min(past.seen, *window - 1) : past.seen);
}

/// _ignore_causal_mask_sdpa: whether SDPA's is_causal serves, or nothing at all.
bool needs_no_mask(const Tensor& padding, const Batch& inputs, std::int64_t queries, std::int64_t keys,
                   const PastTokens& past, std::optional<std::int64_t> window) {
  Tensor mask_indices, padding_mask = padding;
  if (padding.defined() && padding.size(1) > keys) {  // padding_mask[:, arange(keys) + offset]
    mask_indices = shifted_range(padding.tape(), keys);
    padding_mask = padding.tape().empty({padding.size(0), keys}, DType::kBool, kIndex);
  }
  bool ignored = false;
  if (!window || keys < *window) {
    if (queries == 1 || keys == queries) {
      if (padding.defined()) fast_all(padding_mask);
      ignored = !padding.defined() || !inputs.padded;
    }
    if (!ignored && past.seen == 0 && padding.defined()) fast_all(padding_mask);
  }
  drop(padding_mask, mask_indices);
  return ignored;
}

}  // namespace

Tensor create_causal_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& inputs, const PastTokens& past,
                          std::optional<std::int64_t> sliding_window) {
  if (run.attention == Attention::kFlash) return {};  // the kernel takes lengths instead
  Tape& tape = inputs_embeds.tape();
  const NoGrad no_grad(tape.modes);
  const std::int64_t batch = inputs_embeds.size(0);
  const std::int64_t queries = inputs_embeds.size(1);
  const std::int64_t keys = keys_of(queries, past, sliding_window);
  const Tensor padding = boolean_padding(inputs.attention_mask);
  if (!padding.defined() && !past.cached) look_for_packed_sequences(tape, batch, queries);
  const bool eager = run.attention == Attention::kEager;
  const bool tracing = tape.modes.capture != nullptr;
  if (!eager && !tracing && needs_no_mask(padding, inputs, queries, keys, past, sliding_window)) return {};
  const Pattern pattern{{1, 1, queries, keys}, sliding_window ? 2 : 1};
  const Tensor mask = boolean_mask(tape, {batch, 1, queries, keys}, pattern, padding.defined());
  return eager ? additive_mask(mask, inputs_embeds.dtype()) : mask;
}

Tensor create_bidirectional_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& inputs,
                                 const Tensor& encoder_hidden_states) {
  if (run.attention == Attention::kFlash) return {};
  const Tensor padding = boolean_padding(inputs.attention_mask);
  Tape& tape = inputs_embeds.tape();
  const bool tracing = tape.modes.capture != nullptr;
  if (!padding.defined() && !tracing) return {};
  const NoGrad no_grad(tape.modes);
  const std::int64_t batch = inputs_embeds.size(0);
  const std::int64_t queries = inputs_embeds.size(1);
  const std::int64_t keys = encoder_hidden_states.defined() ? encoder_hidden_states.size(1) : queries;
  if (!tracing) {
    tape.memory.scratch(1, kAll);  // padding_mask.all(), which Python waits for
    tape.kernels.synchronize(kAll);
    if (!inputs.padded) return {};
  }
  // A tracer does not look at values: without padding it gets a mask of queries, expanded over the keys.
  const Tensor mask = boolean_mask(tape, {batch, 1, queries, keys}, {{1, 1, queries, 1}, 1}, padding.defined());
  return run.attention == Attention::kEager ? additive_mask(mask, inputs_embeds.dtype()) : mask;
}

}  // namespace memcalc
