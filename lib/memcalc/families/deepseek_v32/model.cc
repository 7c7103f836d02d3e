// DeepSeek-V3.2 and GLM-5: transformers models/deepseek_v32/modeling_deepseek_v32.py,
// models/glm_moe_dsa/modeling_glm_moe_dsa.py.
// MIRRORS(transformers, "models/deepseek_v32/modeling_deepseek_v32.py", "5.17.0")
// MIRRORS(transformers, "models/glm_moe_dsa/modeling_glm_moe_dsa.py", "5.17.0")
#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "memcalc/families/deepseek/interleaved.h"
#include "memcalc/families/deepseek/latent.h"
#include "memcalc/families/deepseek_v32/spec.h"
#include "memcalc/models/linear_states.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// DeepseekV32Indexer, GlmMoeDsaIndexer: which tokens a query attends to. It learns nothing from the loss.
struct Indexer {
  std::int64_t heads, head_dim, rotary_dim, topk;
  bool interleaves;
  Linear wq_b, wk;
  LayerNorm k_norm;
  Linear weights_proj;

  Indexer(ModuleBuilder& b, const DeepseekV32Spec& spec)
      : heads(spec.index_n_heads),
        head_dim(spec.index_head_dim),
        rotary_dim(spec.latent.qk_rope_head_dim),
        topk(spec.index_topk),
        interleaves(spec.index_interleaves),
        wq_b(b, "wq_b", *spec.latent.q_lora_rank, checked_multiply(heads, head_dim), false),
        wk(b, "wk", spec.hidden_size, head_dim, false),
        k_norm(b, "k_norm", head_dim),
        weights_proj(b, "weights_proj", spec.hidden_size, heads, false) {}

  /// [B, S, topk] int32
  [[nodiscard]] Tensor forward(const Tensor& hidden_states, const Tensor& q_resid, const RotaryPositions& positions,
                               const Tensor& attention_mask, KeyValueCache* cache) const {
    const NoGrad no_grad(hidden_states.tape().modes);
    const std::int64_t batch_size = hidden_states.size(0), seq_len = hidden_states.size(1);
    Tensor q, q_rot, q_pass, k, k_rot, k_pass, scores, weights, index_scores;
    const Locals locals(q, q_rot, q_pass, k, k_rot, k_pass, scores, weights, index_scores);
    q = wq_b(q_resid);
    q = view(q, {batch_size, seq_len, heads, head_dim});
    std::tie(q_rot, q_pass) = split_last(q, rotary_dim);
    {
      const Tensor projected = wk(hidden_states);
      k = unsqueeze(k_norm(projected), 2);
    }
    std::tie(k_rot, k_pass) = split_last(k, rotary_dim);
    if (interleaves) {
      rotate_interleaved(q_rot, k_rot, positions, 2);
    } else {
      const Tensor cos = unsqueeze(positions.cos, 2), sin = unsqueeze(positions.sin, 2);
      Tensor q_embed = rotate(q_rot, cos, sin), k_embed = rotate(k_rot, cos, sin);
      q_rot = std::move(q_embed);
      k_rot = std::move(k_embed);
    }
    q = cat(q_rot, q_pass, -1);
    k = squeeze(cat(k_rot, k_pass, -1), 2);
    if (cache != nullptr) {
      if (cache->is_filled()) throw refusal(rules::kLinearStatesRead);
      k = cat_with_empty(k, k.dtype());  // update_indexer
      cache->add_layer(Tensor(), k);
    }
    {
      Tensor product;
      {
        Tensor queries = to_dtype(q, DType::kFloat32);
        Tensor keys = unsqueeze(to_dtype(transpose(k, 1, 2), DType::kFloat32), 1);
        product = matmul(queries, keys);
        drop(queries, keys);
      }
      scores = multiply_scalar(product);
    }
    scores = relu(scores);
    {
      const Tensor projected = to_dtype(weights_proj(hidden_states), DType::kFloat32);
      weights = multiply_scalar(projected);
    }
    index_scores = squeeze(matmul(unsqueeze(weights, 2), scores), 2);
    if (attention_mask.dtype() == DType::kBool) {
      Tensor others = no_grad::bitwise_not(attention_mask);
      Tensor filled = masked_fill(index_scores, others);
      others.reset();
      index_scores = std::move(filled);
    } else {
      index_scores = index_scores + attention_mask;
    }
    const Tensor indices = memcalc::topk(index_scores, std::min(topk, index_scores.size(-1))).indices;
    return to_dtype(indices, DType::kInt32);
  }
};

/// DeepseekV32Attention, GlmMoeDsaAttention
struct SparseLatentAttention : LatentAttention {
  bool hands_on;                   // GLM-5
  std::optional<Indexer> indexer;  // absent: the choice of the layer before

  SparseLatentAttention(ModuleBuilder& b, const DeepseekV32Spec& spec, const RunSpec& run, LayerIndex index)
      : LatentAttention(b, spec, run, nullptr), hands_on(!spec.shared_indexers.empty()) {
    if (hands_on && spec.shared_indexers[static_cast<std::size_t>(index.value)]) return;
    indexer = b.scope("indexer", [&] { return Indexer(b, spec); });
  }

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const {
    const std::int64_t batch_size = hidden_states.size(0), seq_length = hidden_states.size(1);
    Tensor attention_mask = mask;
    Tensor q_resid, q_states, q_pass, q_rot, compressed_kv, kv_pass, k_rot, k_pass, query_states, key_states,
        value_states, topk_indices, index_mask;
    const Locals locals(attention_mask, q_resid, q_states, q_pass, q_rot, compressed_kv, kv_pass, k_rot, k_pass,
                        query_states, key_states, value_states, topk_indices, index_mask);
    {
      const Tensor compressed = (*q_a_proj)(hidden_states);
      q_resid = (*q_a_layernorm)(compressed);
    }
    q_states = transpose(view((*q_b_proj)(q_resid), {batch_size, seq_length, num_heads, -1}), 1, 2);
    std::tie(q_pass, q_rot) = split_last(q_states, dims.qk_nope_head_dim);
    compressed_kv = kv_a_proj_with_mqa(hidden_states);
    std::tie(kv_pass, k_rot) = split_last(compressed_kv, dims.kv_lora_rank);
    k_pass = view(kv_a_layernorm(kv_pass), {batch_size, 1, seq_length, dims.kv_lora_rank});
    k_rot = view(k_rot, {batch_size, 1, seq_length, dims.qk_rope_head_dim});
    rotate_interleaved(q_rot, k_rot, positions, 1);
    query_states = cat(q_pass, q_rot, -1);
    std::tie(key_states, value_states) = expand_kv(k_pass, k_rot);
    if (cache != nullptr) cache->update(key_states, value_states);
    topk_indices = indexer ? indexer->forward(hidden_states, q_resid, positions, select(attention_mask, 1), cache)
                           : *positions.handed_on;
    {
      Tensor ones = no_grad::new_ones(hidden_states.tape(), {batch_size, seq_length, key_states.size(2)}, DType::kBool);
      Tensor places = no_grad::to(topk_indices, DType::kInt64);
      index_mask = unsqueeze(scatter(ones, places, {}, Scattered::kReplaces), 1);
      drop(ones, places);
    }
    if (attention_mask.dtype() == DType::kBool) {
      const Tensor chosen = no_grad::bitwise_not(index_mask);
      attention_mask = no_grad::bitwise_and(attention_mask, chosen);
    } else {
      attention_mask = no_grad::masked_fill(attention_mask, index_mask);
    }
    AttentionResult result = attention_interface(query_states, key_states, value_states, attention_mask, options);
    result.output = flatten_heads(result.output, hidden_states);
    result.output = o_proj(result.output);
    if (hands_on) *positions.handed_on = std::move(topk_indices);
    return result;
  }
};

struct DeepseekV32Router : GroupedSigmoidRouter {
  DeepseekV32Router(ModuleBuilder& b, const DeepseekV32Spec& spec) : GroupedSigmoidRouter(b, spec, DType::kFloat32) {}
};

using DeepseekV32Moe = MixtureWithShared<DeepseekV32Spec, DeepseekV32Router>;

/// DeepseekV32DecoderLayer, GlmMoeDsaDecoderLayer
struct DeepseekV32Layer {
  SparseLatentAttention self_attn;
  DenseOrMixture<DeepseekV32Moe> mlp;
  RmsNorm input_layernorm, post_attention_layernorm;

  DeepseekV32Layer(ModuleBuilder& b, const DeepseekV32Spec& spec, const RunSpec& run, bool /*sliding*/,
                   LayerIndex index)
      : self_attn(b.scope("self_attn", [&] { return SparseLatentAttention(b, spec, run, index); })),
        mlp(b.scope("mlp",
                    [&] {
                      using Mlp = DenseOrMixture<DeepseekV32Moe>;
                      return index.value >= spec.first_k_dense_replace ? Mlp{DeepseekV32Moe(b, spec, false)}
                                                                       : Mlp{GatedMlp(b, spec, false)};
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
    hidden_states = mlp.forward(hidden_states);
    hidden_states = residual + hidden_states;
    drop(residual, attention.weights);
    return hidden_states;
  }
};

}  // namespace

std::unique_ptr<Model> build_deepseek_v32(const Architecture& architecture, const RunSpec& run,
                                          ModuleBuilder& builder) {
  const auto& spec = architecture.as<DeepseekV32Spec>();
  auto plan = decoder_plan<DeepseekV32Layer>(spec, run);
  plan.masks = {.mapping = true, .always = true};
  plan.layers_hand_on = !spec.shared_indexers.empty();
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
