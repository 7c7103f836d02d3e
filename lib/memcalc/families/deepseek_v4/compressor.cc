#include "memcalc/families/deepseek_v4/compressor.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "memcalc/models/interleaved_rotary.h"
#include "memcalc/symbolic/ops/copy_slices.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc::deepseek_v4 {

namespace {

/// compute_default_rope_parameters: 1 / base ** (arange(0, D, 2, dtype=float) / D)
Tensor frequencies(Tape& tape, std::int64_t half) {
  Tensor range = no_grad::divide(no_grad::arange(tape, half, DType::kFloat32));
  const Tensor powers = no_grad::power_of_number(std::move(range));
  Tensor inverse = no_grad::multiply(no_grad::reciprocal(powers));
  tape.memory.set_category(inverse.block(), Category::kWeights);
  return inverse;
}

RotaryEmbedding default_rotary(ModuleBuilder& b, std::int64_t rotary_dim) {
  RotaryEmbedding result;
  result.inverse_frequencies = b.computed_buffer(frequencies(b.tape, rotary_dim / 2));
  result.original_inverse_frequencies = b.buffer({rotary_dim / 2}, DType::kFloat32);
  return result;
}

/// x[:, :length], which Python's indexing leaves out where it is all.
Tensor first_tokens(const Tensor& x, std::int64_t length) { return length == x.size(1) ? x : slice(x, 1, 0, length); }

}  // namespace

Rotaries::Rotaries(ModuleBuilder& b, const DeepseekV4Spec& spec)
    : types{default_rotary(b, spec.rotary_dim),
            spec.yarn_positions ? RotaryEmbedding(b, spec.rotary_dim, true) : default_rotary(b, spec.rotary_dim)} {}

void Rotaries::initialize(ModuleBuilder& b) const {
  Tensor current;
  for (const RotaryEmbedding& each : types) {
    current = each.yarn ? each.initialize(b) : frequencies(b.tape, each.inverse_frequencies.size(0));
  }
}

std::pair<Tensor, Tensor> Rotaries::forward(std::size_t type, const Tensor& x, const Tensor& position_ids) const {
  const NoGrad no_grad(x.tape().modes);
  RotaryAngles angles(types[type].inverse_frequencies, position_ids);
  Tensor cos = multiply_scalar(cosine(angles.freqs));
  Tensor sin = multiply_scalar(sine(angles.freqs));
  std::pair<Tensor, Tensor> positions{to_dtype(cos, x.dtype()), to_dtype(sin, x.dtype())};
  drop(angles.positions, angles.freqs, cos, sin);
  return positions;
}

Tensor rotate_last(const Tensor& x, Tensor cos, Tensor sin) {
  cos = unsqueeze(each_twice(cos), 1);
  sin = unsqueeze(each_twice(sin), 1);
  const std::int64_t rotated_dim = cos.size(-1), rest = x.size(-1) - rotated_dim;
  Tensor nope = slice(x, -1, 0, rest), rope = slice(x, -1, rest, rotated_dim), rotated;
  {
    Tensor straight = to_dtype(rope, DType::kFloat32) * cos;
    Tensor turned = to_dtype(rotate_every_two(rope), DType::kFloat32) * sin;
    Tensor sum = std::move(straight) + std::move(turned);
    rotated = to_dtype(std::move(sum), x.dtype());
  }
  Tensor result = cat(nope, rotated, -1);
  drop(cos, sin, nope, rope, rotated);
  return result;
}

Tensor LayerStates::update(const Tensor& states) {
  window = no_grad::from_list(states.tape(), {});  // lazy_initialization
  full = cat_with_empty(states, states.dtype());
  return full;
}

void LayerStates::keep(KeyValueCache& cache) {
  Tape& tape = full.tape();
  const auto add = [&](Tensor& each) {
    if (!tape.modes.grad_enabled) tape.memory.set_category(each.block(), Category::kKeyValueCache);
    cache.add_layer({}, std::move(each));
  };
  for (std::array<Tensor, 2>* each : {&overlap_gate, &overlap_kv, &compressed, &buffer_gate, &buffer_kv}) {
    for (const std::size_t place : {1U, 0U}) {
      if ((*each)[place].defined()) add((*each)[place]);
    }
  }
  add(window);
  add(full);
}

Pooling::Pooling(ModuleBuilder& b, const DeepseekV4Spec& spec, std::int64_t rate, std::int64_t head_dim, bool overlaps)
    : rate(rate), head_dim(head_dim), overlaps(overlaps) {
  const std::int64_t width = overlaps ? 2 * head_dim : head_dim;
  kv_proj = Linear(b, "kv_proj", spec.hidden_size, width, false);
  gate_proj = Linear(b, "gate_proj", spec.hidden_size, width, false);
  position_bias = b.parameter_before("position_bias", {rate, width}, "kv_proj.weight", /*decays=*/false);
  kv_norm = RmsNorm(b, "kv_norm", head_dim);
}

/// A window of twice as many tokens: the first series of the window before, the second of its own.
void Pooling::overlap(Locals& of, std::int64_t windows) const {
  Tape& tape = of.chunk_kv.tape();
  const Shape shape{of.chunk_kv.size(0), windows, 2 * rate, head_dim};
  of.new_kv = no_grad::new_zeros(tape, shape, of.chunk_kv.dtype());
  of.new_gate = no_grad::full(tape, shape, of.chunk_gate.dtype());
  const auto copy = [&](Tensor& base, const Tensor& source, const auto& part_of_base, const auto& part_of_source) {
    base = copy_into_view(base, part_of_base(base), part_of_source(source));
  };
  const auto own = [&](const Tensor& x) { return slice(x, 2, rate, rate); };
  const auto second = [&](const Tensor& x) { return slice(x, -1, head_dim, head_dim); };
  copy(of.new_kv, of.chunk_kv, own, second);
  copy(of.new_gate, of.chunk_gate, own, second);
  if (windows == 1) return;
  const auto before = [&](const Tensor& x) { return slice(slice(x, 1, 1, windows - 1), 2, 0, rate); };
  const auto first = [&](const Tensor& x) { return slice(slice(x, 1, 0, windows - 1), -1, 0, head_dim); };
  copy(of.new_kv, of.chunk_kv, before, first);
  copy(of.new_gate, of.chunk_gate, before, first);
}

Pooling::Locals Pooling::forward(const Tensor& hidden_states, const Rotaries& rotaries, std::size_t place,
                                 LayerStates* states) const {
  const std::int64_t batch = hidden_states.size(0), windows = hidden_states.size(1) / rate;
  Tape& tape = hidden_states.tape();
  Locals of;
  of.kv = kv_proj(hidden_states);
  of.gate = gate_proj(hidden_states);
  if (states != nullptr) {  // views of what is left over, which hold the whole
    states->buffer_kv[place] = of.kv;
    states->buffer_gate[place] = of.gate;
  }
  if (windows == 0) {
    if (overlaps) {
      throw Error(ErrorCode::kUnsupported, "sequence: " + std::to_string(hidden_states.size(1)) +
                                               " tokens make no compressed key; accepted: " + std::to_string(rate) +
                                               " tokens or more");
    }
    of.compressed = no_grad::new_zeros(tape, {batch, 0, head_dim}, of.kv.dtype());
    if (states != nullptr) states->compressed[place] = of.compressed;
    return of;
  }
  const Shape shape{batch, windows, rate, of.kv.size(-1)};
  of.chunk_kv = first_tokens(of.kv, windows * rate);
  of.chunk_gate = first_tokens(of.gate, windows * rate);
  of.chunk_kv = view(of.chunk_kv, shape);
  of.chunk_gate = view(of.chunk_gate, shape) + position_bias;
  if (overlaps) {
    overlap(of, windows);
    if (states != nullptr) {  // update_overlap_state
      const auto last = [&](const Tensor& chunk) { return clone(slice(select(chunk, 1), -1, 0, head_dim)); };
      states->overlap_kv[place] = last(of.chunk_kv);
      states->overlap_gate[place] = last(of.chunk_gate);
    }
  }
  {
    const Tensor &kv = overlaps ? of.new_kv : of.chunk_kv, &gate = overlaps ? of.new_gate : of.chunk_gate;
    Tensor weights = to_dtype(softmax(gate, DType::kFloat32), kv.dtype());
    Tensor weighted = kv * std::move(weights);
    const Tensor pooled = sum_over(std::move(weighted), 2, false);
    of.compressed = kv_norm(pooled);
  }
  of.positions = no_grad::arange(tape, windows);
  of.positions = no_grad::add(no_grad::multiply(of.positions));
  of.positions = no_grad::expand(no_grad::unsqueeze(of.positions, 0), {batch, windows});
  std::tie(of.cos, of.sin) = rotaries.forward(1, of.compressed, of.positions);
  {
    const Tensor heads = unsqueeze(of.compressed, 1);
    of.compressed = squeeze(rotate_last(heads, of.cos, of.sin), 1);
  }
  if (states != nullptr) states->compressed[place] = of.compressed;
  return of;
}

Indexer::Indexer(ModuleBuilder& b, const DeepseekV4Spec& spec, std::vector<Rotaries>& rotaries)
    : heads(spec.index_n_heads),
      head_dim(spec.index_head_dim),
      topk(spec.index_topk),
      pooling(b, spec, spec.chosen_rate, spec.index_head_dim, true),
      q_b_proj(b, "q_b_proj", spec.q_lora_rank, checked_multiply(heads, head_dim), false),
      rotary_emb(rotaries.emplace_back(b, spec)),
      weights_proj(b.scope("scorer", [&] { return Linear(b, "weights_proj", spec.hidden_size, heads, false); })) {}

/// DeepseekV4IndexerScorer: [B, S, keys]
Tensor Indexer::scores(const Tensor& q, const Tensor& compressed_kv, const Tensor& hidden_states) const {
  Tensor scores, weights;
  {
    Tensor queries = to_dtype(q, DType::kFloat32);
    Tensor keys = unsqueeze(to_dtype(transpose(compressed_kv, 1, 2), DType::kFloat32), 1);
    scores = matmul(queries, keys);
    drop(queries, keys);
  }
  scores = multiply_scalar(relu(scores));
  {
    Tensor projected = to_dtype(weights_proj(hidden_states), DType::kFloat32);
    weights = multiply_scalar(std::move(projected));
  }
  Tensor weighted = scores * unsqueeze(weights, -1);
  Tensor result = sum_over(std::move(weighted), 2, false);
  drop(scores, weights);
  return result;
}

Tensor Indexer::forward(const Tensor& hidden_states, const Tensor& q_residual, const Tensor& position_ids,
                        LayerStates* states) const {
  Pooling::Locals of = pooling.forward(hidden_states, rotary_emb, 1, states);
  Tensor compressed_kv = of.compressed, q, index_scores, causal_threshold, entry_indices, future_mask, invalid;
  auto [cos_q, sin_q] = rotary_emb.forward(1, hidden_states, position_ids);
  q = transpose(view(q_b_proj(q_residual), {hidden_states.size(0), hidden_states.size(1), -1, head_dim}), 1, 2);
  q = transpose(rotate_last(q, cos_q, sin_q), 1, 2);
  index_scores = scores(q, compressed_kv, hidden_states);
  const std::int64_t keys = compressed_kv.size(1);
  causal_threshold = no_grad::floor_divide(no_grad::add(position_ids));
  entry_indices = no_grad::arange(hidden_states.tape(), keys);
  {
    const Tensor ends = no_grad::unsqueeze(causal_threshold, -1);
    future_mask = no_grad::greater_equal(no_grad::view(entry_indices, {1, 1, keys}), ends);
  }
  index_scores = masked_fill(index_scores, future_mask);
  Tensor top_k_indices = memcalc::topk(index_scores, std::min(topk, keys)).indices;
  invalid = no_grad::greater_equal(top_k_indices, no_grad::unsqueeze(causal_threshold, -1));
  Tensor result;
  {
    const Tensor none = no_grad::full_like(top_k_indices);
    result = no_grad::where(invalid, none, top_k_indices);
  }
  of.clear();
  drop(compressed_kv, cos_q, sin_q, q, index_scores, causal_threshold, entry_indices, future_mask, top_k_indices,
       invalid);
  return result;
}

Compressor::Compressor(ModuleBuilder& b, const DeepseekV4Spec& spec, CompressedKeys keys,
                       std::vector<Rotaries>& rotaries)
    : pooling(b, spec, keys == CompressedKeys::kAll ? spec.all_rate : spec.chosen_rate, spec.head_dim,
              keys == CompressedKeys::kChosen),
      rotary_emb(rotaries.emplace_back(b, spec)) {
  if (keys == CompressedKeys::kChosen) indexer = b.scope("indexer", [&] { return Indexer(b, spec, rotaries); });
}

std::pair<Tensor, Tensor> Compressor::forward(const Tensor& hidden_states, const Tensor& q_residual,
                                              const Tensor& position_ids, LayerStates* states) const {
  Pooling::Locals of = pooling.forward(hidden_states, rotary_emb, 0, states);
  return indexer ? chosen_keys(of, hidden_states, q_residual, position_ids, states) : all_keys(of, position_ids);
}

std::pair<Tensor, Tensor> Compressor::all_keys(Pooling::Locals& of, const Tensor& position_ids) const {
  Tensor compressed_kv = unsqueeze(of.compressed, 1), entry_indices, causal_threshold, block_bias;
  const std::int64_t batch = compressed_kv.size(0), keys = compressed_kv.size(2), tokens = position_ids.size(1);
  if (keys > 0) {
    Tape& tape = compressed_kv.tape();
    entry_indices = no_grad::arange(tape, keys);
    causal_threshold = no_grad::floor_divide(no_grad::add(position_ids));
    block_bias = no_grad::new_zeros(tape, {batch, 1, tokens, keys}, compressed_kv.dtype());
    const Tensor ends = no_grad::unsqueeze(no_grad::unsqueeze(causal_threshold, 1), -1);
    Tensor later = no_grad::greater_equal(no_grad::view(entry_indices, {1, 1, 1, keys}), ends);
    Tensor filled = no_grad::masked_fill(block_bias, later);
    later.reset();
    block_bias = std::move(filled);
  }
  of.clear();
  drop(entry_indices, causal_threshold);
  return {std::move(compressed_kv), std::move(block_bias)};
}

std::pair<Tensor, Tensor> Compressor::chosen_keys(Pooling::Locals& of, const Tensor& hidden_states,
                                                  const Tensor& q_residual, const Tensor& position_ids,
                                                  LayerStates* states) const {
  Tensor compressed_kv = unsqueeze(of.compressed, 1), top_k_indices, valid, safe_indices, block_bias;
  const std::int64_t batch = compressed_kv.size(0), keys = compressed_kv.size(2), tokens = hidden_states.size(1);
  top_k_indices = indexer->forward(hidden_states, q_residual, position_ids, states);
  valid = no_grad::greater_equal(top_k_indices);
  {
    const Tensor behind = no_grad::full_like(top_k_indices);
    safe_indices = no_grad::where(valid, top_k_indices, behind);
  }
  block_bias = no_grad::full(compressed_kv.tape(), {batch, 1, tokens, keys + 1}, compressed_kv.dtype());  // scatter_
  Tensor result = no_grad::slice(block_bias, -1, 0, keys);
  of.clear();
  drop(top_k_indices, valid, safe_indices, block_bias);
  return {std::move(compressed_kv), std::move(result)};
}

}  // namespace memcalc::deepseek_v4
