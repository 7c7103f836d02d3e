// What DeepSeek-V2 and V3 share: multi-head latent attention.
#pragma once

#include <optional>
#include <utility>

#include "memcalc/families/deepseek/spec.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

/// …Attention.forward, but for the rotary positions.
struct LatentAttention {
  /// Rotates the positional parts of query [B, H, S, D] and key [B, 1, S, D].
  using Rotate = void (*)(Tensor& query, Tensor& key, const RotaryPositions& positions);

  LatentAttentionSpec dims;
  std::int64_t num_heads = 0;
  AttentionOptions options;
  Rotate rotate = nullptr;
  Tensor (*scale_of_queries)(const Tensor& position_ids) = nullptr;  // float32; null: they are not scaled
  bool rotated_key_dies_first = false;  // V2 and Mistral 4 name their variables in another order
  std::optional<Linear> q_proj;         // where queries are not compressed
  std::optional<Linear> q_a_proj;       // where they are
  std::optional<RmsNorm> q_a_layernorm;
  std::optional<Linear> q_b_proj;
  Linear kv_a_proj_with_mqa;
  RmsNorm kv_a_layernorm;
  Linear kv_b_proj, o_proj;

  LatentAttention(ModuleBuilder& b, const DeepseekSpec& spec, const RunSpec& run, Rotate rotate);

  [[nodiscard]] AttentionResult forward(const Tensor& hidden_states, const RotaryPositions& positions,
                                        const Tensor& mask, KeyValueCache* cache) const;

 protected:
  [[nodiscard]] Tensor queries(const Tensor& hidden_states) const;
  /// Key and value of every head from the compressed latents [B, 1, S, …].
  [[nodiscard]] std::pair<Tensor, Tensor> expand_kv(const Tensor& latent, const Tensor& rotated_key) const;
};

/// By config.json's rope_interleave: neighbours or halves, of all heads.
[[nodiscard]] LatentAttention::Rotate rotation_of_heads(bool interleaves);

}  // namespace memcalc
