// MiniMax-M3's text model: transformers models/minimax_m3_vl/modeling_minimax_m3_vl.py, MiniMaxM3VLForCausalLM.
// MIRRORS(transformers, "models/minimax_m3_vl/modeling_minimax_m3_vl.py", "5.17.0")
#include <algorithm>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "memcalc/families/minimax_m3/spec.h"
#include "memcalc/models/centered_rms_norm.h"
#include "memcalc/models/experts.h"
#include "memcalc/models/linear_states.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/amax.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// MiniMaxM3VLIndexer: which blocks of keys a query attends to. It learns nothing from the loss.
struct BlockIndexer {
  std::int64_t heads, head_dim, block_size, topk_blocks, local_blocks, query_heads;
  Linear q_proj, k_proj;
  CenteredRmsNorm q_norm, k_norm;

  BlockIndexer(ModuleBuilder& b, const MiniMaxM3Spec& spec)
      : heads(spec.index_n_heads),
        head_dim(spec.index_head_dim),
        block_size(spec.index_block_size),
        topk_blocks(spec.index_topk_blocks),
        local_blocks(spec.index_local_blocks),
        query_heads(spec.num_attention_heads),
        q_proj(b, "q_proj", spec.hidden_size, checked_multiply(heads, head_dim), false),
        k_proj(b, "k_proj", spec.hidden_size, head_dim, false),
        q_norm(b, "q_norm", head_dim),
        k_norm(b, "k_norm", head_dim) {}

  [[nodiscard]] std::int64_t blocks_of(std::int64_t keys) const { return (keys + block_size - 1) / block_size; }

  /// [B, heads, S, blocks] int64, -1 where there is none. `kept`: what the cache keeps of the keys.
  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const RotaryPositions& positions,
                               const Tensor& position_ids, Tensor* kept) const {
    const std::int64_t batch = hidden_states.size(0), queries = hidden_states.size(1);
    Tensor idx_q = view(q_proj(hidden_states), {batch, queries, -1, head_dim});
    idx_q = transpose(q_norm(idx_q), 1, 2);
    Tensor idx_k = view(k_proj(hidden_states), {batch, queries, 1, head_dim});
    idx_k = transpose(k_norm(idx_k), 1, 2);
    apply_partial_rotary(idx_q, idx_k, positions);
    if (kept != nullptr) *kept = idx_k;
    const std::int64_t keys = idx_k.size(2), blocks = blocks_of(keys);
    Tensor scores, k_positions, token_future, block_scores, q_block, local, local_idx;
    {
      Tensor q = to_dtype(idx_q, DType::kFloat32), k = transpose(to_dtype(idx_k, DType::kFloat32), 2, 3);
      scores = matmul(q, k);
      drop(q, k);
    }
    Tape& tape = hidden_states.tape();
    k_positions = no_grad::arange(tape, keys);
    token_future = later_keys(k_positions, position_ids);
    scores = masked_fill(scores, token_future);
    if (blocks * block_size > keys) scores = pad_to(scores, {batch, heads, queries, blocks * block_size});
    scores = view(scores, {batch, heads, queries, blocks, block_size});
    block_scores = amax(scores, 1U << 4U, false);
    q_block = no_grad::floor_divide(position_ids);
    if (local_blocks > 0) {
      local = no_grad::arange(tape, local_blocks);
      {
        Tensor before = no_grad::subtract(no_grad::unsqueeze(q_block, -1), no_grad::view(local, {1, 1, local_blocks}));
        local_idx = no_grad::clamp(std::move(before));
      }
      local_idx = no_grad::expand(no_grad::unsqueeze(local_idx, 1), {batch, heads, queries, local_blocks});
      block_scores = scatter_in_place(block_scores, local_idx, {}, Scattered::kReplaces);
    }
    auto [topk_scores, topk_indices] = memcalc::topk(block_scores, std::min(topk_blocks, blocks));
    Tensor result;
    {
      const Tensor none = no_grad::equal(topk_scores);
      result = no_grad::masked_fill(topk_indices, none);
    }
    drop(idx_q, idx_k, scores, k_positions, token_future, block_scores, q_block, local, local_idx, topk_scores,
         topk_indices);
    return result;
  }

  /// build_block_mask: [B, query heads, S, keys], which is added to the scores.
  [[nodiscard]] Tensor mask(const Tensor& block_indices, const Tensor& attention_mask, std::int64_t keys, DType dtype,
                            const Tensor& position_ids) const {
    Tape& tape = block_indices.tape();
    const std::int64_t batch = block_indices.size(0), queries = block_indices.size(2), blocks = blocks_of(keys);
    Tensor safe, bias, block_keep, padding_mask, keep, k_positions, token_future;
    {
      const Tensor none = no_grad::less(block_indices);
      safe = no_grad::masked_fill(block_indices, none);
    }
    bias = no_grad::full(tape, {batch, heads, queries, blocks + 1}, dtype);  // scatter_
    bias = no_grad::slice(bias, -1, 0, blocks);
    {
      Tensor kept = no_grad::equal(bias);
      block_keep = no_grad::repeat_interleave(std::move(kept), block_size, 3);
    }
    if (blocks * block_size > keys) block_keep = no_grad::slice(block_keep, -1, 0, keys);
    block_keep = no_grad::repeat_interleave(block_keep, query_heads / heads, 1);
    if (attention_mask.defined()) {
      padding_mask = attention_mask.dtype() == DType::kBool ? attention_mask : no_grad::equal(attention_mask);
      keep = no_grad::bitwise_and(block_keep, padding_mask);
    } else {
      k_positions = no_grad::arange(tape, keys);
      token_future = later_keys(k_positions, position_ids);
      const Tensor seen = no_grad::bitwise_not(token_future);
      keep = no_grad::bitwise_and(block_keep, seen);
    }
    Tensor result;
    {
      Tensor zeros = no_grad::zeros(tape, keep.shape(), dtype), others = no_grad::bitwise_not(keep);
      result = no_grad::masked_fill(zeros, others);
      drop(zeros, others);
    }
    drop(safe, bias, block_keep, padding_mask, keep, k_positions, token_future);
    return result;
  }

 private:
  /// k_positions[None, None, None, :] > position_ids[:, None, :, None]
  [[nodiscard]] static Tensor later_keys(const Tensor& k_positions, const Tensor& position_ids) {
    return no_grad::greater(no_grad::view(k_positions, {1, 1, 1, k_positions.size(0)}),
                            no_grad::unsqueeze(no_grad::unsqueeze(position_ids, 1), -1));
  }
};

/// MiniMaxM3VLAttention
struct MiniMaxM3Attention : HeadProjections {
  CenteredRmsNorm q_norm, k_norm;
  std::optional<BlockIndexer> indexer;

  MiniMaxM3Attention(ModuleBuilder& b, const MiniMaxM3Spec& spec, const RunSpec& run, LayerIndex index)
      : HeadProjections(b, spec, causal_attention(run, spec.attention_dropout), /*sliding=*/false, false, false),
        q_norm(b, "q_norm", spec.head_dim),
        k_norm(b, "k_norm", spec.head_dim) {
    if (!spec.sparse_layers[static_cast<std::size_t>(index.value)]) return;
    indexer = b.scope("indexer", [&] { return BlockIndexer(b, spec); });
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    Tensor attention_mask = mask, block_indices, position_ids, index_keys;
    Tensor query_states, key_states, value_states;
    {
      const Tensor projected = heads(q_proj, hidden_states);
      query_states = transpose(q_norm(projected), 1, 2);
    }
    {
      const Tensor projected = heads(k_proj, hidden_states);
      key_states = transpose(k_norm(projected), 1, 2);
    }
    value_states = transpose(heads(v_proj, hidden_states), 1, 2);
    apply_partial_rotary(query_states, key_states, positions);
    if (cache != nullptr && indexer) {
      if (cache->is_filled()) throw refusal(rules::kLinearStatesRead);
      Tensor kept_keys = cat_with_empty(key_states, key_states.dtype());
      value_states = cat_with_empty(value_states, key_states.dtype());
      key_states = std::move(kept_keys);  // as update() returns: the layer had held the first ones until then
    } else if (cache != nullptr) {
      cache->update(key_states, value_states);
    }
    if (indexer) {
      const std::int64_t batch = hidden_states.size(0), tokens = hidden_states.size(1);
      position_ids = no_grad::expand(positions.position_ids, {batch, tokens});
      block_indices =
          indexer->forward(hidden_states, positions, position_ids, cache != nullptr ? &index_keys : nullptr);
      if (cache != nullptr) keep(*cache, index_keys, key_states, value_states);
      attention_mask =
          indexer->mask(block_indices, attention_mask, key_states.size(2), query_states.dtype(), position_ids);
    }
    AttentionResult result = attention_interface(query_states, key_states, value_states, attention_mask, options);
    result.output = flatten_heads(result.output, hidden_states);
    Tensor output = o_proj(result.output);
    drop(attention_mask, query_states, key_states, value_states, block_indices, position_ids, result.output);
    return {std::move(output), std::move(result.weights)};
  }

 private:
  /// MiniMaxM3VLSparseCacheLayer: keys and values die before the indexer's keys.
  static void keep(KeyValueCache& cache, const Tensor& index_keys, const Tensor& keys, const Tensor& values) {
    Tape& tape = keys.tape();
    for (const Tensor* each : {&index_keys, &keys, &values}) {
      if (!tape.modes.grad_enabled) tape.memory.set_category(each->block(), Category::kKeyValueCache);
    }
    cache.add_layer({}, index_keys);
    cache.add_layer(values, keys);
  }
};

/// (up + 1) * (gate * sigmoid(gate * alpha)) of clamped halves.
Tensor apply_minimax_gate(const Tensor& gate_up, std::string_view /*act_fn*/) {
  std::vector<Tensor> parts = split(gate_up, -1, 2);
  Tensor gate = std::move(parts[0]), up = std::move(parts[1]), glu;
  gate = clamp_above(gate);
  up = clamp(up);
  {
    const Tensor activated = sigmoid(multiply_scalar(gate));
    glu = gate * activated;
  }
  Tensor gated = add_scalar(up) * glu;
  drop(gate, up, glu);
  return gated;
}

/// MiniMaxM3VLDenseMLP
struct MiniMaxM3Mlp {
  Linear gate_up_proj, down_proj;

  MiniMaxM3Mlp(ModuleBuilder& b, const MiniMaxM3Spec& spec, std::int64_t width)
      : gate_up_proj(b, "gate_up_proj", spec.hidden_size, checked_multiply(2, width), false),
        down_proj(b, "down_proj", width, spec.hidden_size, false) {}

  [[nodiscard]] Tensor forward(const Tensor& hidden_states) const {
    Tensor gate_up = gate_up_proj(hidden_states);
    std::vector<Tensor> parts = split(gate_up, -1, 2);
    Tensor gate = std::move(parts[0]), up = std::move(parts[1]), glu;
    gate = clamp_above(gate);
    up = clamp(up);
    {
      const Tensor activated = sigmoid(multiply_scalar(gate));
      glu = gate * activated;
    }
    Tensor result;
    {
      const Tensor gated = add_scalar(up) * glu;
      result = down_proj(gated);
    }
    drop(gate_up, gate, up, glu);
    return result;
  }
};

/// MiniMaxM3VLTopKRouter: MiniMax-M2's, which has the correction itself.
struct MiniMaxM3Router {
  SigmoidRouter chosen;
  Tensor e_score_correction_bias;

  MiniMaxM3Router(ModuleBuilder& b, const MiniMaxM3Spec& spec)
      : chosen(b, spec), e_score_correction_bias(b.buffer({spec.experts.count}, b.dtype)) {}

  [[nodiscard]] Routing forward(const Tensor& input) const { return chosen.forward(input, e_score_correction_bias); }
};

/// MiniMaxM3VLSparseMoeBlock
struct MiniMaxM3Mixture {
  MiniMaxM3Router gate;
  Experts experts;
  MiniMaxM3Mlp shared_experts;

  MiniMaxM3Mixture(ModuleBuilder& b, const MiniMaxM3Spec& spec)
      : gate(b.scope("gate", [&] { return MiniMaxM3Router(b, spec); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {.apply_gate = apply_minimax_gate}); })),
        shared_experts(
            b.scope("shared_experts", [&] { return MiniMaxM3Mlp(b, spec, spec.shared_intermediate_size); })) {}

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor hidden_states = view(input, {-1, input.size(-1)});
    Tensor shared_output = shared_experts.forward(hidden_states);
    const Routing routing = experts.local(gate.forward(hidden_states));
    hidden_states = experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights);
    hidden_states = multiply_scalar(hidden_states);  // * routed_scaling_factor
    hidden_states = hidden_states + shared_output;
    Tensor result = reshape(hidden_states, input.shape());
    drop(hidden_states, shared_output);
    return result;
  }
};

/// MiniMaxM3VLDecoderLayer
struct MiniMaxM3Layer {
  MiniMaxM3Attention self_attn;
  std::variant<MiniMaxM3Mlp, MiniMaxM3Mixture> mlp;
  CenteredRmsNorm input_layernorm, post_attention_layernorm;

  MiniMaxM3Layer(ModuleBuilder& b, const MiniMaxM3Spec& spec, const RunSpec& run, bool /*sliding*/, LayerIndex index)
      : self_attn(b.scope("self_attn", [&] { return MiniMaxM3Attention(b, spec, run, index); })),
        mlp(b.scope("mlp",
                    [&] {
                      using Mlp = std::variant<MiniMaxM3Mlp, MiniMaxM3Mixture>;
                      return spec.dense_layers[static_cast<std::size_t>(index.value)]
                                 ? Mlp{MiniMaxM3Mlp(b, spec, spec.dense_intermediate_size)}
                                 : Mlp{MiniMaxM3Mixture(b, spec)};
                    })),
        input_layernorm(b, "input_layernorm", spec.hidden_size),
        post_attention_layernorm(b, "post_attention_layernorm", spec.hidden_size) {}

  [[nodiscard]] Tensor forward(const Tensor& input, const RotaryPositions& positions, const Tensor& mask,
                               KeyValueCache* cache) const {
    Tensor residual = input;
    Tensor hidden_states = input_layernorm(input);
    AttentionResult attention = self_attn.forward(hidden_states, positions, mask, cache);
    hidden_states = std::move(attention.output);
    hidden_states = residual + hidden_states;
    residual = hidden_states;
    hidden_states = post_attention_layernorm(hidden_states);
    hidden_states = std::visit([&](const auto& module) { return module.forward(hidden_states); }, mlp);
    hidden_states = residual + hidden_states;
    drop(residual, attention.weights);
    return hidden_states;
  }
};

}  // namespace

std::unique_ptr<Model> build_minimax_m3(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<MiniMaxM3Spec>();
  auto plan = decoder_plan<MiniMaxM3Layer, CenteredRmsNorm>(spec, run);
  plan.rotary_dim = spec.rotary_dim;
  plan.position_ids_first = false;
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
