// Attention masks as transformers/masking_utils.py makes them: booleans for SDPA, numbers for eager attention. That
// the batch holds padding is what --padding says; the framework looks at the data.
// MIRRORS(transformers, "masking_utils.py", "5.17.0")
// MIRRORS(transformers, "modeling_attn_mask_utils.py", "5.17.0")
#include <algorithm>
#include <utility>

#include "memcalc/models/attention.h"
#include "memcalc/models/block_masks.h"
#include "memcalc/models/full_causal_mask.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/host_work.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/region_compiler.h"

namespace memcalc {

namespace {

/// is_tracing(): of a whole model's graph, and of the graph that the masks' function is where the model's breaks at its
/// layers and Python calls that function.
bool is_tracing(const Tape& tape) {
  const Modes& modes = tape.modes;
  return modes.capture != nullptr || (modes.compiler != nullptr && modes.compiler->compiles(RegionCompiler::kHead));
}

/// The positions that the caller passed, 0 to S - 1 in every sequence. They are there: nothing is asked for.
Tensor positions_of_caller(Tape& tape, std::int64_t batch, std::int64_t sequence) {
  const OnMetaDevice there(tape.memory);
  return no_grad::expand(no_grad::arange(tape, sequence), {batch, sequence});
}

/// find_packed_sequence_indices: the number of each token's sequence in its row, as positions that restart tell it;
/// undefined where none does (4.57.6: never). Looking takes memory in any case, and Python waits for the answer: `if
/// (packed_sequence_mask[:, -1] == 0).all()`.
Tensor find_packed_sequences(const Tensor& position_ids, bool restart) {
  Tape& tape = position_ids.tape();
  const std::int64_t sequence = position_ids.size(1);
  Tensor first_dummy_value = no_grad::subtract(no_grad::slice(position_ids, 1, 0, 1));
  Tensor position_diff;
  {  // torch.diff(position_ids, prepend=first_dummy_value, dim=-1)
    const Tensor joined = no_grad::cat(first_dummy_value, position_ids, 1);
    position_diff = no_grad::subtract(no_grad::slice(joined, 1, 1, sequence), no_grad::slice(joined, 1, 0, sequence));
  }
  Tensor packed_sequence_mask = no_grad::cumsum(no_grad::not_equal(position_diff), 1);
  const bool asks = !tape.behaviors.packed_check_keeps_mask;
  if (asks) {
    const Tensor none = no_grad::all(no_grad::equal(no_grad::select(packed_sequence_mask, 1)));
    if (!is_tracing(tape)) read_on_host(tape, aten::kAll);
  }
  drop(first_dummy_value, position_diff);
  if (asks && !restart) packed_sequence_mask.reset();
  return packed_sequence_mask;
}

/// mask.all(), which Python waits for. A mask that was made for the question dies before its answer does.
void wait_for_all(Tensor mask) {
  const Tensor whole = no_grad::all(mask);
  mask.reset();
  read_on_host(whole, aten::kAll);
}

/// fast_all: mask.sum() == mask.numel(), which Python waits for.
void fast_all(const Tensor& mask) {
  const Tensor whole = no_grad::equal(no_grad::sum(mask));
  read_on_host(whole, aten::kEq);
}

/// arange(length) + offset; before 5.0 the offset was added in place.
Tensor shifted_range(Tape& tape, std::int64_t length) {
  Tensor range = no_grad::arange(tape, length);
  return tape.behaviors.masks_by_vmap ? range : no_grad::add(std::move(range));
}

/// Which keys a query may look at, before padding.
enum class Pattern : std::uint8_t { kAll, kCausal, kSlidingWindow, kNeighbours, kChunks };

/// What a mask's functions are called with: q_idx [1, 1, Q, 1], kv_idx [1, 1, 1, K]. Before 5.0 torch.vmap calls them
/// with numbers, and its batched tensors have no dimension of size 1: [Q, 1], [1, K], and of a new_ones(()) [Q].
struct Places {
  Tensor queries, keys;
  Shape of_scalar{};
  Tensor left_padding{}, rows{};  // of chunks: [B], and the batch's range
};

/// and_masks: starts from a single true and combines one function's mask after the other.
class Conjunction {
 public:
  explicit Conjunction(const Places& places)
      : mask_(no_grad::new_ones(places.queries.tape(), places.of_scalar, DType::kBool)) {}

  void combine(Tensor other) { mask_ = no_grad::bitwise_and(mask_, std::move(other)); }
  [[nodiscard]] Tensor take() { return std::move(mask_); }

 private:
  Tensor mask_;
};

/// chunked_overlay: (kv_idx - left_padding[b]) // chunk_size == (q_idx - left_padding[b]) // chunk_size
Tensor same_chunk(const Places& places) {
  const Tensor rows = no_grad::view(places.rows, {places.rows.size(0), 1, 1, 1});
  const auto chunk_of = [&](const Tensor& index) {
    return no_grad::floor_divide(no_grad::subtract(index, no_grad::index(places.left_padding, {{0, rows}})));
  };
  const Tensor of_keys = chunk_of(places.keys);
  return no_grad::equal(of_keys, chunk_of(places.queries));
}

Tensor pattern_mask(Pattern pattern, const Places& places) {
  switch (pattern) {
    case Pattern::kAll: return no_grad::greater_equal(places.queries);               // bidirectional_mask_function
    case Pattern::kCausal: return no_grad::less_equal(places.keys, places.queries);  // causal_mask_function
    case Pattern::kNeighbours: {  // sliding_window_bidirectional_mask_function
      Conjunction all(places);
      all.combine(no_grad::less_equal(no_grad::absolute(no_grad::subtract(places.queries, places.keys))));
      all.combine(no_grad::greater_equal(places.queries));
      return all.take();
    }
    case Pattern::kChunks: {  // chunked_causal_mask_function
      Conjunction all(places);
      all.combine(same_chunk(places));
      all.combine(no_grad::less_equal(places.keys, places.queries));
      return all.take();
    }
    case Pattern::kSlidingWindow: break;
  }
  Conjunction all(places);  // sliding_window_causal_mask_function
  all.combine(no_grad::greater(places.keys, no_grad::subtract(places.queries)));
  all.combine(no_grad::less_equal(places.keys, places.queries));
  return all.take();
}

/// packed_sequence_mask_function: packed[batch index, query index] == packed[batch index, key index]
Tensor same_sequence(const Tensor& packed, const Tensor& batch_range, const Places& places) {
  const Tensor rows = no_grad::view(batch_range, {batch_range.size(0), 1, 1, 1});
  const Tensor of_queries = no_grad::index(packed, {{0, rows}, {1, places.queries}});
  return no_grad::equal(of_queries, no_grad::index(packed, {{0, rows}, {1, places.keys}}));
}

/// padding_mask_function: padding[batch index, key index]
Tensor is_token(const Tensor& padding, const Tensor& batch_range, const Places& places) {
  const std::int64_t batch = batch_range.size(0);
  return no_grad::index(padding, {{0, no_grad::view(batch_range, {batch, 1, 1, 1})}, {1, places.keys}});
}

/// The same under torch.vmap: [batch, queries, keys].
Tensor same_sequence_by_vmap(const Tensor& packed, const Places& places) {
  const std::int64_t batch = packed.size(0), queries = places.queries.size(0), keys = places.keys.size(1);
  const auto of = [&](std::int64_t length) {
    const OnMetaDevice there(packed.tape().memory);
    return no_grad::arange(packed.tape(), length);
  };
  const Tensor rows = no_grad::view(of(batch), {batch, 1});
  const Tensor of_queries = no_grad::index(packed, {{0, rows}, {1, of(queries)}});
  const Tensor of_keys = no_grad::index(packed, {{0, rows}, {1, of(keys)}});
  return no_grad::equal(no_grad::view(of_queries, {batch, queries, 1}), no_grad::view(of_keys, {batch, 1, keys}));
}

/// and_masks of the pattern and of what else there is.
template <typename Other>
Tensor both(Pattern pattern, const Places& places, Other other) {
  Conjunction all(places);
  all.combine(pattern_mask(pattern, places));
  all.combine(other());
  return all.take();
}

/// _vmap_for_bhqkv (4.57.6): the caller's cache_position are the queries' places.
Tensor boolean_mask_by_vmap(Tape& tape, const Shape& shape, Pattern pattern, const Tensor& padding,
                            const Tensor& packed) {
  const std::int64_t batch = shape[0], queries = shape[2], keys = shape[3];
  Tensor key_range = shifted_range(tape, keys);
  Tensor batch_range = no_grad::arange(tape, batch);
  Tensor head_range = no_grad::arange(tape, 1);
  Tensor cache_position;
  {
    const OnMetaDevice there(tape.memory);
    cache_position = no_grad::arange(tape, queries);
  }
  Tensor mask;
  {
    const Places places{no_grad::view(cache_position, {queries, 1}), no_grad::view(key_range, {1, keys}), {queries}};
    if (packed.defined()) {
      mask = both(pattern, places, [&] { return same_sequence_by_vmap(packed, places); });
      record_host_work(tape, HostWork::kVmappedIndex, 2);
    } else if (padding.defined()) {
      mask = both(pattern, places, [&] {
        const Tensor rows = no_grad::view(batch_range, {batch, 1});
        return no_grad::view(no_grad::index(padding, {{0, rows}, {1, key_range}}), {batch, 1, keys});
      });
      record_host_work(tape, HostWork::kVmappedIndex);
    } else {
      mask = pattern_mask(pattern, places);
    }
  }
  drop(key_range, batch_range, head_range);
  mask = no_grad::view(mask, {mask.rank() == 3 ? batch : 1, 1, queries, keys});
  return expand(mask, shape);
}

/// sdpa_mask: the pattern and, where there is `padding`, the tokens that are none, or where a row is `packed` those of
/// the same sequence; [batch, 1, queries, keys].
Tensor boolean_mask(Tape& tape, const Shape& shape, Pattern pattern, const Tensor& padding, const Tensor& packed = {},
                    const Tensor& left_padding = {}) {
  if (tape.behaviors.masks_by_vmap) return boolean_mask_by_vmap(tape, shape, pattern, padding, packed);
  const std::int64_t batch = shape[0], queries = shape[2], keys = shape[3];
  Tensor batch_range = no_grad::arange(tape, batch);
  Tensor head_range = no_grad::arange(tape, 1);
  Tensor query_range = shifted_range(tape, queries);
  Tensor key_range = shifted_range(tape, keys);
  Tensor mask;
  {
    const Places places{no_grad::view(query_range, {1, 1, queries, 1}),
                        no_grad::view(key_range, {1, 1, 1, keys}),
                        {},
                        left_padding,
                        batch_range};
    if (packed.defined()) {
      mask = both(pattern, places, [&] { return same_sequence(packed, batch_range, places); });
    } else if (padding.defined()) {
      mask = both(pattern, places, [&] { return is_token(padding, batch_range, places); });
    } else {
      mask = pattern_mask(pattern, places);
    }
  }
  mask = expand(mask, shape);
  drop(batch_range, head_range, query_range, key_range);
  return mask;
}

/// eager_mask: 0 where attention is allowed, the type's lowest number elsewhere.
Tensor additive_mask(const Tensor& allowed, DType dtype) {
  Tape& tape = allowed.tape();
  Tensor lowest = no_grad::scalar(tape, dtype);
  Tensor zero = no_grad::scalar(tape, dtype);
  Tensor mask = no_grad::where(allowed, zero, lowest);
  drop(zero, lowest);
  return mask;
}

Tensor boolean_padding(const Tensor& attention_mask) {
  return attention_mask.defined() ? no_grad::to(attention_mask, DType::kBool) : Tensor();
}

/// get_mask_sizes: how many keys the queries meet. A sliding layer has kept the window's; with a window of 0 there is
/// none (Qwen2-MoE).
std::int64_t keys_of(std::int64_t queries, const PastTokens& past, std::optional<std::int64_t> window) {
  return queries + (window && *window > 0 ? std::min(past.seen, *window - 1) : past.seen);
}

/// _ignore_causal_mask_sdpa: whether SDPA's is_causal serves, or nothing at all.
bool needs_no_mask(const Tensor& padding, const Batch& inputs, std::int64_t queries, std::int64_t keys,
                   const PastTokens& past, std::optional<std::int64_t> window) {
  Tensor mask_indices, padding_mask = padding;
  if (padding.defined() && padding.size(1) > keys) {  // padding_mask[:, arange(keys) + offset]
    mask_indices = shifted_range(padding.tape(), keys);
    padding_mask = no_grad::index(padding, {{1, mask_indices}});
  }
  bool ignored = false;
  if (!window || keys < *window) {
    const bool by_sum = padding.defined() && padding.tape().behaviors.all_by_sum;
    if (queries == 1 || keys == queries) {
      if (padding.defined()) by_sum ? fast_all(padding_mask) : wait_for_all(padding_mask);
      ignored = !padding.defined() || !inputs.padded;
    }
    if (by_sum && !ignored && past.seen == 0) fast_all(padding_mask);
  }
  drop(padding_mask, mask_indices);
  return ignored;
}

}  // namespace

namespace {

/// left_padding_tokens of create_chunked_causal_mask
Tensor left_padding_of(Tape& tape, const Tensor& attention_mask, std::int64_t batch) {
  if (!attention_mask.defined()) return no_grad::zeros(tape, {batch}, DType::kInt64);
  Tensor before_first;
  {
    Tensor seen = no_grad::cumsum(attention_mask, 1), none = no_grad::zeros_like(attention_mask);
    before_first = no_grad::equal(seen, none);
    drop(seen, none);
  }
  return no_grad::sum(before_first, 1);
}

Tensor causal_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& inputs, const PastTokens& past,
                   std::optional<std::int64_t> sliding_window, bool allow_is_causal_skip, bool chunked = false) {
  if (run.attention == Attention::kFlash) return {};  // the kernel takes lengths instead
  Tape& tape = inputs_embeds.tape();
  const NoGrad no_grad(tape.modes);
  const std::int64_t batch = inputs_embeds.size(0);
  const std::int64_t queries = inputs_embeds.size(1);
  const std::int64_t keys = keys_of(queries, past, sliding_window);
  Tensor left_padding;  // of chunks; it dies behind the arguments
  const Tensor padding = boolean_padding(inputs.attention_mask);
  Tensor packed;
  if (!padding.defined() && !past.cached) {
    const bool restart = inputs.sequences > 1;
    packed = find_packed_sequences(
        inputs.position_ids.defined() ? inputs.position_ids : positions_of_caller(tape, batch, queries), restart);
  }
  if (chunked) left_padding = left_padding_of(tape, padding, batch);
  const bool eager = run.attention == Attention::kEager;
  const bool may_skip = allow_is_causal_skip && !eager && !packed.defined() && !is_tracing(tape);
  if (may_skip && needs_no_mask(padding, inputs, queries, keys, past, sliding_window)) return {};
  const Pattern pattern = chunked ? Pattern::kChunks : sliding_window ? Pattern::kSlidingWindow : Pattern::kCausal;
  const Tensor mask = boolean_mask(tape, {batch, 1, queries, keys}, pattern, padding, packed, left_padding);
  return eager ? additive_mask(mask, inputs_embeds.dtype()) : mask;
}

}  // namespace

Tensor create_causal_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& inputs, const PastTokens& past,
                          std::optional<std::int64_t> sliding_window) {
  return causal_mask(run, inputs_embeds, inputs, past, sliding_window, true);
}

Tensor create_full_causal_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& batch,
                               const PastTokens& past) {
  return causal_mask(run, inputs_embeds, batch, past, std::nullopt, false);
}

Tensor create_chunked_causal_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& batch,
                                  const PastTokens& past, std::int64_t chunk_size) {
  return causal_mask(run, inputs_embeds, batch, past, chunk_size, true, true);
}

namespace {

/// transformers 4.57.6 modeling_attn_mask_utils.py: _prepare_4d_attention_mask_for_sdpa, and of eager attention
/// ModuleUtilsMixin.get_extended_attention_mask.
Tensor prepared_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& inputs, std::int64_t queries) {
  const Tensor& mask = inputs.attention_mask;
  const std::int64_t batch = mask.size(0), keys = mask.size(1);
  const DType dtype = inputs_embeds.dtype();
  if (run.attention == Attention::kEager) {
    Tensor extended = no_grad::to(no_grad::view(mask, {batch, 1, 1, keys}), dtype);
    extended = no_grad::multiply(no_grad::subtract(std::move(extended)));
    return extended;
  }
  wait_for_all(no_grad::equal(mask));
  if (!inputs.padded) return {};
  const Shape shape{batch, 1, queries, keys};
  Tensor expanded = no_grad::copy_to(no_grad::expand(no_grad::view(mask, {batch, 1, 1, keys}), shape), dtype);
  Tensor inverted = no_grad::subtract(expanded);  // from torch.tensor(1.0), which is on the processor
  Tensor result = no_grad::masked_fill(inverted, no_grad::to(inverted, DType::kBool));
  drop(expanded, inverted);
  return result;
}

}  // namespace

Tensor create_4d_causal_mask(const Tensor& inputs_embeds, const Batch& batch) {
  Tape& tape = inputs_embeds.tape();
  const NoGrad no_grad(tape.modes);
  const std::int64_t sequences = inputs_embeds.size(0), tokens = inputs_embeds.size(1);
  Tensor causal = no_grad::full(tape, {tokens, tokens}, DType::kFloat32);
  {
    const Tensor places = no_grad::arange(tape, tokens);
    const Tensor next = no_grad::view(no_grad::add(places), {tokens, 1});
    no_grad::less(no_grad::view(places, {1, tokens}), next).reset();  // masked_fill_ in place
  }
  causal = no_grad::to(causal, inputs_embeds.dtype());
  const Shape shape{sequences, 1, tokens, tokens};
  causal = no_grad::expand(no_grad::view(causal, {1, 1, tokens, tokens}), shape);
  if (!batch.attention_mask.defined()) return causal;
  const Tensor tokens_of = no_grad::view(batch.attention_mask, {sequences, 1, 1, tokens});
  Tensor expanded = no_grad::copy_to(no_grad::expand(tokens_of, shape), inputs_embeds.dtype());
  Tensor inverted = no_grad::subtract(expanded);
  Tensor padding = no_grad::masked_fill(inverted, no_grad::to(inverted, DType::kBool));
  drop(expanded, inverted);
  return no_grad::add(padding, causal);
}

Batch with_mask_of_ones(const Batch& batch, DType dtype) {
  Batch masked = batch;
  Tape& tape = batch.input_ids.tape();
  if (!tape.behaviors.masks_of_ones || batch.attention_mask.defined()) return masked;
  masked.attention_mask = no_grad::ones(tape, batch.input_ids.shape(), dtype);
  masked.padded = false;
  return masked;
}

void warn_if_padding(const Tensor& input_ids) {
  const Tensor ends = no_grad::index(input_ids, {{1, no_grad::from_list(input_ids.tape(), {2})}});
  no_grad::any(no_grad::equal(ends)).reset();
}

namespace {

/// blockwise_overlay: block[batch index, query index] == block[batch index, key index], and that is one.
Tensor same_block(const Tensor& blocks, const Tensor& batch_range, const Places& places) {
  const Tensor rows = no_grad::view(batch_range, {batch_range.size(0), 1, 1, 1});
  Tensor of_queries = no_grad::index(blocks, {{0, rows}, {1, places.queries}});
  Tensor of_keys = no_grad::index(blocks, {{0, rows}, {1, places.keys}});
  Tensor alike = no_grad::equal(of_queries, of_keys);
  Tensor is_block = no_grad::greater_equal(of_queries);
  Tensor result = no_grad::bitwise_and(alike, is_block);
  drop(alike, is_block, of_queries, of_keys);
  return result;
}

/// or_masks(causal_mask_function, blockwise_overlay), or of the window's function: starts from a single false.
Tensor pattern_or_block(Pattern pattern, const Tensor& blocks, const Tensor& batch_range, const Places& places) {
  Tensor mask = no_grad::new_zeros(blocks.tape(), {}, DType::kBool);
  mask = no_grad::bitwise_or(mask, pattern_mask(pattern, places));
  mask = no_grad::bitwise_or(mask, same_block(blocks, batch_range, places));
  return mask;
}

/// or_masks(causal_mask_function, blockwise_overlay) within a window: sliding_window_overlay.
Tensor sliding_or_block(const Tensor& blocks, const Tensor& batch_range, const Places& places) {
  Conjunction all(places);
  all.combine(pattern_or_block(Pattern::kCausal, blocks, batch_range, places));
  all.combine(no_grad::greater(places.keys, no_grad::subtract(places.queries)));
  return all.take();
}

}  // namespace

Tensor create_block_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& inputs,
                         const Tensor& block_sequence_ids, const Tensor& position_ids, BlockWindow window) {
  Tape& tape = inputs_embeds.tape();
  const NoGrad no_grad(tape.modes);
  const std::int64_t batch = inputs_embeds.size(0), tokens = inputs_embeds.size(1);
  Tensor padding = boolean_padding(inputs.attention_mask);
  if (!padding.defined() && position_ids.defined()) {
    find_packed_sequences(no_grad::expand(position_ids, {batch, tokens}), false).reset();
  }
  Tensor batch_range = no_grad::arange(tape, batch);
  Tensor head_range = no_grad::arange(tape, 1);
  Tensor query_range = shifted_range(tape, tokens);
  Tensor key_range = shifted_range(tape, tokens);
  Tensor mask;
  {
    const Places places{no_grad::view(query_range, {1, 1, tokens, 1}), no_grad::view(key_range, {1, 1, 1, tokens})};
    const auto pattern = [&] {
      if (window == BlockWindow::kOfAll) return sliding_or_block(block_sequence_ids, batch_range, places);
      const Pattern causal = window == BlockWindow::kNone ? Pattern::kCausal : Pattern::kSlidingWindow;
      return pattern_or_block(causal, block_sequence_ids, batch_range, places);
    };
    if (padding.defined()) {
      Conjunction all(places);
      all.combine(pattern());
      all.combine(is_token(padding, batch_range, places));
      mask = all.take();
    } else {
      mask = pattern();
    }
  }
  mask = expand(mask, {batch, 1, tokens, tokens});
  drop(batch_range, head_range, query_range, key_range);
  if (run.attention == Attention::kEager) mask = additive_mask(mask, inputs_embeds.dtype());
  padding.reset();
  return mask;
}

Tensor create_bidirectional_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& inputs,
                                 const Tensor& encoder_hidden_states, std::optional<std::int64_t> sliding_window) {
  if (run.attention == Attention::kFlash) return {};
  Tape& tape = inputs_embeds.tape();
  if (tape.behaviors.masks_of_ones && inputs.attention_mask.defined() && !is_tracing(tape)) {
    const NoGrad no_grad(tape.modes);
    return prepared_mask(run, inputs_embeds, inputs, inputs_embeds.size(1));
  }
  const Tensor padding = boolean_padding(inputs.attention_mask);
  const bool tracing = is_tracing(tape);
  const std::int64_t batch = inputs_embeds.size(0);
  const std::int64_t queries = inputs_embeds.size(1);
  const std::int64_t keys = encoder_hidden_states.defined() ? encoder_hidden_states.size(1) : queries;
  const bool is_local = sliding_window && keys >= *sliding_window;
  const NoGrad no_grad(tape.modes);
  if (!tracing) {  // _ignore_bidirectional_mask_sdpa
    if (padding.defined()) wait_for_all(padding);
    if (!is_local && (!padding.defined() || !inputs.padded)) return {};
  }
  // A tracer does not look at values: without padding it gets a mask of queries, expanded over the keys.
  const Pattern pattern = sliding_window ? Pattern::kNeighbours : Pattern::kAll;
  const Tensor mask = boolean_mask(tape, {batch, 1, queries, keys}, pattern, padding);
  return run.attention == Attention::kEager ? additive_mask(mask, inputs_embeds.dtype()) : mask;
}

}  // namespace memcalc
