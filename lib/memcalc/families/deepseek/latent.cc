#include "memcalc/families/deepseek/latent.h"

#include <tuple>
#include <utility>
#include <vector>

#include "memcalc/families/deepseek/interleaved.h"
#include "memcalc/models/megatron_config.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/copy_slices.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

LatentAttention::LatentAttention(ModuleBuilder& b, const DeepseekSpec& spec, const RunSpec& run, Rotate rotate)
    : dims(spec.latent),
      num_heads(spec.num_attention_heads),
      options(causal_attention(run, spec.attention_dropout)),
      rotate(rotate) {
  const std::int64_t queries = checked_multiply(num_heads, dims.qk_nope_head_dim + dims.qk_rope_head_dim);
  if (dims.q_lora_rank) {
    q_a_proj = Linear(b, "q_a_proj", spec.hidden_size, *dims.q_lora_rank, spec.attention_bias);
    q_a_layernorm = RmsNorm(b, "q_a_layernorm", *dims.q_lora_rank);
    q_b_proj = Linear(b, "q_b_proj", *dims.q_lora_rank, queries, false);
  } else {
    q_proj = Linear(b, "q_proj", spec.hidden_size, queries, false);
  }
  kv_a_proj_with_mqa =
      Linear(b, "kv_a_proj_with_mqa", spec.hidden_size, dims.kv_lora_rank + dims.qk_rope_head_dim, spec.attention_bias);
  kv_a_layernorm = RmsNorm(b, "kv_a_layernorm", dims.kv_lora_rank);
  kv_b_proj = Linear(b, "kv_b_proj", dims.kv_lora_rank,
                     checked_multiply(num_heads, dims.qk_nope_head_dim + dims.v_head_dim), false);
  o_proj = Linear(b, "o_proj", checked_multiply(num_heads, dims.v_head_dim), spec.hidden_size, spec.attention_bias);
}

Tensor LatentAttention::queries(const Tensor& hidden_states) const {
  if (q_proj) return (*q_proj)(hidden_states);
  Tensor compressed = (*q_a_proj)(hidden_states);
  compressed = (*q_a_layernorm)(compressed);
  return (*q_b_proj)(compressed);
}

std::pair<Tensor, Tensor> LatentAttention::expand_kv(const Tensor& latent, const Tensor& rotated_key) const {
  const std::int64_t batch_size = latent.size(0);
  const std::int64_t seq_length = latent.size(2);
  const Tensor kv =
      transpose(view(kv_b_proj(latent), {batch_size, seq_length, -1, dims.qk_nope_head_dim + dims.v_head_dim}), 1, 2);
  auto [k_nope, value_states] = split_last(kv, dims.qk_nope_head_dim);
  const Tensor k_rot = expand(rotated_key, {-1, k_nope.size(1), -1, -1});
  Tensor key_states =
      new_empty(kv, {batch_size, kv.size(1), seq_length, dims.qk_nope_head_dim + dims.qk_rope_head_dim});
  key_states = copy_into_columns(key_states, 0, k_nope);
  key_states = copy_into_columns(key_states, dims.qk_nope_head_dim, k_rot);
  return {std::move(key_states), std::move(value_states)};
}

AttentionResult LatentAttention::forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                         const Tensor& mask, KeyValueCache* cache) const {
  const std::int64_t batch_size = hidden_states.size(0);
  const std::int64_t seq_length = hidden_states.size(1);
  Tensor q_states, q_pass, q_rot, compressed_kv, kv_nope, k_rot, query_states, key_states, value_states;
  Tensor& first_latent = rotated_key_dies_first ? k_rot : kv_nope;
  Tensor& second_latent = rotated_key_dies_first ? kv_nope : k_rot;
  const Locals locals(q_states, q_pass, q_rot, compressed_kv, first_latent, second_latent, query_states, key_states,
                      value_states);
  q_states = queries(hidden_states);
  q_states = transpose(view(q_states, {batch_size, seq_length, num_heads, -1}), 1, 2);
  std::tie(q_pass, q_rot) = split_last(q_states, dims.qk_nope_head_dim);

  compressed_kv = kv_a_proj_with_mqa(hidden_states);
  std::tie(kv_nope, k_rot) = split_last(compressed_kv, dims.kv_lora_rank);
  // Both latents are viewed as of a single head.
  kv_nope = view(kv_a_layernorm(kv_nope), {batch_size, 1, seq_length, dims.kv_lora_rank});
  k_rot = view(k_rot, {batch_size, 1, seq_length, dims.qk_rope_head_dim});
  rotate(q_rot, k_rot, positions);
  if (cache != nullptr) cache->update(kv_nope, k_rot);

  query_states = cat(q_pass, q_rot, -1);
  if (scale_of_queries != nullptr) {
    query_states = query_states * no_grad::to(scale_of_queries(positions.position_ids), query_states.dtype());
  }
  std::tie(key_states, value_states) = expand_kv(kv_nope, k_rot);
  AttentionResult result = attention_interface(query_states, key_states, value_states, mask, options);
  result.output = flatten_heads(result.output, hidden_states);
  result.output = o_proj(result.output);
  return result;
}

/// Experts from the first layer that is not dense on; Megatron-core counts keys and values of every head.
void take_deepseek(const DeepseekSpec& spec, MegatronConfig& config) {
  take_decoder(config, spec);
  config.num_query_groups = spec.num_attention_heads;
  config.qk_layernorm = true;
  config.latent = spec.latent;
  std::vector<bool> dense(static_cast<std::size_t>(spec.num_hidden_layers), false);
  for (std::size_t i = 0; i < dense.size() && static_cast<std::int64_t>(i) < spec.first_k_dense_replace; ++i) {
    dense[i] = true;
  }
  config.moe = MegatronExperts{spec.experts, checked_multiply(spec.n_shared_experts, spec.experts.intermediate_size),
                               std::move(dense)};
}

void deepseek_v2_to_megatron(const Architecture& architecture, MegatronConfig& config) {
  take_deepseek(architecture.as<DeepseekV2Spec>(), config);
}

void deepseek_v3_to_megatron(const Architecture& architecture, MegatronConfig& config) {
  take_deepseek(architecture.as<DeepseekV3Spec>(), config);
}

LatentAttention::Rotate rotation_of_heads(bool interleaves) {
  if (interleaves) {
    return [](Tensor& query, Tensor& key, const RotaryPositions& positions) {
      rotate_interleaved(query, key, positions, 1);
    };
  }
  return [](Tensor& query, Tensor& key, const RotaryPositions& positions) {
    apply_rotary(query, key, positions.cos, positions.sin);
  };
}

}  // namespace memcalc
