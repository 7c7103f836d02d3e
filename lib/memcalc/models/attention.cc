#include "memcalc/models/attention.h"

#include "memcalc/models/ulysses_attention.h"
#include "memcalc/symbolic/ops/dtensor.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/liger.h"
#include "memcalc/symbolic/ops/loss.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

AttentionResult eager_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                const AttentionOptions& options, const Tensor& position_bias) {
  const std::int64_t groups = query.size(1) / key.size(1);
  Tensor key_states = repeat_kv(key, groups);
  Tensor value_states = repeat_kv(value, groups);
  Tensor attn_weights = multiply_scalar(matmul(query, transpose(key_states, 2, 3)));
  if (options.softcap) {
    attn_weights = divide_scalar(attn_weights);
    attn_weights = tanh(attn_weights);
    attn_weights = multiply_scalar(attn_weights);
  }
  if (position_bias.defined()) attn_weights = attn_weights + position_bias;
  if (mask.defined()) attn_weights = attn_weights + mask;
  if (options.softmax_in_float32) {
    attn_weights = to_dtype(softmax(attn_weights, DType::kFloat32), query.dtype());
  } else {
    attn_weights = softmax(attn_weights);
    if (options.weights_in_value_dtype) attn_weights = to_dtype(attn_weights, value.dtype());
  }
  attn_weights = dropout(attn_weights, options.dropout);
  Tensor attn_output = matmul(attn_weights, value_states);
  attn_output = contiguous(transpose(attn_output, 1, 2));
  drop(key_states, value_states);
  return {std::move(attn_output), std::move(attn_weights)};
}

/// create_position_bias_mask: the bias where attention is allowed, the type's lowest number elsewhere.
Tensor position_bias_mask(const Tensor& position_bias, const Tensor& mask, bool causal, const Tensor& query,
                          const Tensor& key) {
  const bool copies = query.tape().behaviors.t5_attention == T5Attention::kSdpaContiguous;
  if (mask.defined()) return copies ? contiguous(where(mask, position_bias)) : where(mask, position_bias);
  if (!causal) return copies ? contiguous(position_bias) : position_bias;
  Tensor queries = no_grad::arange(query.tape(), query.size(2));
  Tensor keys = no_grad::arange(query.tape(), key.size(2));
  Tensor allowed = no_grad::greater_equal(no_grad::view(queries, {1, 1, query.size(2), 1}),
                                          no_grad::view(keys, {1, 1, 1, key.size(2)}));
  drop(queries, keys);
  if (!copies) return where(allowed, position_bias);
  Tensor biased = where(allowed, position_bias);
  Tensor copy = contiguous(biased);
  drop(allowed, biased);
  return copy;
}

AttentionResult sdpa_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                               const AttentionOptions& options, const Tensor& position_bias) {
  // use_gqa_in_sdpa: without a mask the kernel shares key heads itself, with one they are copied.
  Tensor key_states = key;
  Tensor value_states = value;
  const Tape& tape = query.tape();
  const bool decodes = query.size(2) == 1 && tape.modes.capture == nullptr && !position_bias.defined();
  if (mask.defined() && decodes && key.size(1) < query.size(1) && tape.behaviors.decoding_packs_queries) {
    // pack_gqa: the queries of a group stand where the tokens were, so that keys and values serve as they are.
    const std::int64_t batch = query.size(0), heads = query.size(1), dim = query.size(3);
    const Tensor packed = reshape(query, {batch, key.size(1), heads / key.size(1), dim});
    Tensor attn_output = scaled_dot_product_attention(packed, key, value, mask, {});
    attn_output = reshape(attn_output, {batch, heads, 1, value.size(3)});
    return {contiguous(transpose(attn_output, 1, 2)), {}};
  }
  if (mask.defined()) {
    const std::int64_t groups = query.size(1) / key.size(1);
    key_states = repeat_kv(key, groups);
    value_states = repeat_kv(value, groups);
  }
  SdpaOptions sdpa{.dropout = query.tape().modes.training ? options.dropout : 0,
                   .causal = options.causal && !mask.defined() && query.size(2) > 1};
  Tensor attention_mask = mask;
  if (position_bias.defined()) {
    attention_mask = position_bias_mask(position_bias, mask, sdpa.causal, query, key);
    sdpa.causal = false;
  }
  Tensor attn_output = scaled_dot_product_attention(query, key_states, value_states, attention_mask, sdpa);
  attn_output = contiguous(transpose(attn_output, 1, 2));
  drop(key_states, value_states, attention_mask);
  return {std::move(attn_output), {}};
}

/// flash_attention_forward: padding is taken out of the sequences first, which is not modelled (step.cc says so).
AttentionResult flash_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                const AttentionOptions& options) {
  const bool causal = options.causal && query.size(2) > 1;
  if (value.size(3) != query.size(3)) {  // padded to the query's head dimension, cropped afterwards
    Tensor attn_output = flash_attention_2(query, key, pad_to(value, key.shape()), options.dropout, causal);
    return {slice(transpose(attn_output, 1, 2), -1, 0, value.size(3)), {}};
  }
  Tensor attn_output = flash_attention_2(query, key, value, options.dropout, causal);
  return {contiguous(transpose(attn_output, 1, 2)), {}};
}

}  // namespace

Tensor rotate_half(const Tensor& x) {
  const std::int64_t half = x.size(-1) / 2;
  const Tensor x1 = slice(x, -1, 0, half);
  const Tensor x2 = slice(x, -1, half, x.size(-1) - half);
  return cat(negate(x2), x1, -1);
}

Tensor repeat_kv(const Tensor& x, std::int64_t times) {
  if (times == 1) return x;
  const Tensor grouped = open_slices(unsqueeze(open_slices(x, {0, 1}), 2), {3, 4});
  const Tensor expanded = expand(grouped, {x.size(0), x.size(1), times, x.size(2), x.size(3)});
  return reshape(expanded, {x.size(0), x.size(1) * times, x.size(2), x.size(3)});
}

Tensor rotate(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  Tensor scaled = x * cos;
  Tensor rotated = rotate_half(x);
  Tensor product = std::move(rotated) * sin;
  return std::move(scaled) + std::move(product);
}

AttentionResult attention_interface(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& mask,
                                    const AttentionOptions& options, const Tensor& position_bias) {
  if (const std::optional<UlyssesRanks>& ulysses = query.tape().modes.ulysses) {
    return ulysses_attention(query, key, value, ulysses->ranks, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
      return sdpa_attention(q, k, v, {}, options, {});
    });
  }
  if (options.implementation == Attention::kEager) {
    return eager_attention(query, key, value, mask, options, position_bias);
  }
  if (options.implementation == Attention::kFlash) return flash_attention(query, key, value, options);
  return sdpa_attention(query, key, value, mask, options, position_bias);
}

RotaryAngles::RotaryAngles(const Tensor& inverse_frequencies, const Tensor& position_ids) {
  Tape& tape = position_ids.tape();
  const NoGrad no_grad(tape.modes);
  const WithoutAutocast without_autocast(tape.modes.autocast);
  const std::int64_t batch = position_ids.size(0);
  const std::int64_t sequence = position_ids.size(1);
  const std::int64_t count = inverse_frequencies.size(0);
  if (!tape.behaviors.rotary_by_matmul) {  // position_ids[..., None].float() * inv_freq
    freqs = to_dtype(view(position_ids, {batch, sequence, 1}), DType::kFloat32) * inverse_frequencies;
    return;
  }
  const Tensor expanded = expand(view(inverse_frequencies, {1, count, 1}), {batch, count, 1});
  positions = to_dtype(position_ids, DType::kFloat32);
  freqs = transpose(matmul(expanded, view(positions, {batch, 1, sequence})), 1, 2);
}

std::pair<Tensor, Tensor> rotary_embedding(const Tensor& x, const Tensor& inverse_frequencies,
                                           const Tensor& position_ids, std::optional<DType> dtype) {
  const NoGrad no_grad(x.tape().modes);
  RotaryAngles angles(inverse_frequencies, position_ids);
  Tensor emb = cat(angles.freqs, angles.freqs, -1);
  Tensor cos = multiply_scalar(cosine(emb));
  Tensor sin = multiply_scalar(sine(emb));
  std::pair<Tensor, Tensor> result{to_dtype(cos, dtype.value_or(x.dtype())), to_dtype(sin, dtype.value_or(x.dtype()))};
  drop(angles.positions, angles.freqs, emb, cos, sin);
  return result;
}

void apply_rotary(Tensor& query, Tensor& key, const Tensor& cos, const Tensor& sin) {
  const Tensor cos_heads = unsqueeze(cos, 1);
  const Tensor sin_heads = unsqueeze(sin, 1);
  Tensor rotated_query = rotate(query, cos_heads, sin_heads);
  Tensor rotated_key = rotate(key, cos_heads, sin_heads);
  query = std::move(rotated_query);
  key = std::move(rotated_key);
}

Tensor make_position_ids(Tape& tape, std::int64_t sequence) {
  Tensor positions = no_grad::arange(tape, sequence);
  return unsqueeze(tape.behaviors.cache_positions ? positions : no_grad::add(std::move(positions)), 0);
}

Tensor position_ids_of(const Batch& batch, const Tensor& inputs_embeds) {
  if (batch.position_ids.defined()) return batch.position_ids;
  return make_position_ids(inputs_embeds.tape(), inputs_embeds.size(1));
}

namespace {

Tensor traced_causal_lm_loss(const Tensor& logits, const Tensor& labels, const Tensor& number_of_items) {
  Tape& tape = logits.tape();
  const std::int64_t vocabulary = logits.size(-1);
  Tensor upcast = to_dtype(logits, DType::kFloat32);
  Tensor padded;
  Tensor shifted = labels;
  if (!tape.modes.ulysses) {  // else they were shifted before they were cut (shift_labels)
    padded = no_grad::pad_last(labels, 1);
    shifted = contiguous(slice(padded, 1, 1, labels.size(1)));
  }
  upcast = view(upcast, {-1, vocabulary});
  shifted = view(shifted, {-1});
  const std::optional<SequenceSplit>& split = tape.modes.sequence_split;
  Tensor loss = split && split->loss_parallel ? loss_parallel_cross_entropy(upcast, shifted, split->ranks)
                                              : cross_entropy(upcast, shifted, reduction_beside(number_of_items));
  if (number_of_items.defined()) loss = divide(loss, number_of_items);
  drop(upcast, padded, shifted);
  return loss;
}

/// By itself, or as a graph of its own where the run compiles it.
Tensor compiled_loss(const KeptTensors& arguments, const std::function<Tensor(const KeptTensors&)>& loss) {
  const Tape& tape = arguments.front().tape();
  const bool compiles = tape.modes.compiler != nullptr && tape.modes.capture == nullptr &&
                        tape.modes.compiler->compiles(RegionCompiler::kLoss);
  if (!compiles) return loss(arguments);
  const auto region = [&loss](const KeptTensors& traced) { return RegionResults{{loss(traced)}, {}}; };
  return std::move(tape.modes.compiler->run(RegionCompiler::kLoss, arguments, region, true)->read.front());
}

}  // namespace

Tensor causal_lm_loss(const Tensor& logits, const Tensor& labels, const Tensor& number_of_items) {
  return compiled_loss({logits, labels, number_of_items}, [](const KeptTensors& arguments) {
    return traced_causal_lm_loss(arguments[0], arguments[1], arguments[2]);
  });
}

Tensor shifted_causal_lm_loss(const Tensor& logits, const Tensor& labels) {
  return compiled_loss({logits, labels}, [](const KeptTensors& arguments) {
    Tensor upcast = to_dtype(view(arguments[0], {-1, arguments[0].size(-1)}), DType::kFloat32);
    const Tensor targets = view(arguments[1], {-1});
    Tensor loss = cross_entropy(upcast, targets);
    upcast.reset();
    return loss;
  });
}

Tensor liger_causal_lm_loss(const Tensor& hidden_states, const Tensor& lm_head, const Tensor& labels,
                            const Tensor& number_of_items) {
  Tensor padded = no_grad::pad_last(labels, 1);
  Tensor shifted = contiguous(slice(padded, 1, 1, labels.size(1)));
  shifted = view(shifted, {-1});
  Tensor loss = liger_linear_cross_entropy(view(hidden_states, {-1, hidden_states.size(-1)}), lm_head, shifted);
  if (number_of_items.defined()) loss = divide(loss, number_of_items);
  drop(padded, shifted);
  return loss;
}

}  // namespace memcalc
