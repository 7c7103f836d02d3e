// What DeepSeek-V2 and V3 share: multi-head latent attention, experts in groups, experts that every token takes.
#pragma once

#include <optional>
#include <utility>

#include "memcalc/families/deepseek/spec.h"
#include "memcalc/models/experts.h"
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
  bool rotated_key_dies_first = false;  // V2 names its variables in another order
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

 private:
  [[nodiscard]] Tensor queries(const Tensor& hidden_states) const;
  /// Key and value of every head from the compressed latents [B, 1, S, …].
  [[nodiscard]] std::pair<Tensor, Tensor> expand_kv(const Tensor& latent, const Tensor& rotated_key) const;
};

/// The experts of the `topk_group` best groups of each token. group_scores [tokens, groups]; score_mask [tokens,
/// experts] is one where an expert is in such a group.
void limit_to_groups(const Tensor& group_scores, std::int64_t topk_group, std::int64_t experts, Tensor& group_idx,
                     Tensor& group_mask, Tensor& score_mask);
/// scores.masked_fill(~score_mask.bool(), number)
[[nodiscard]] Tensor fill_other_groups(const Tensor& scores, const Tensor& score_mask);

/// F.linear(hidden_states.type(torch.float32), weight.type(torch.float32))
[[nodiscard]] Tensor float32_linear(const Tensor& hidden_states, const Tensor& weight);

/// scores.view(-1, groups, experts // groups)
[[nodiscard]] Tensor by_group(const Tensor& scores, std::int64_t groups);

/// DeepseekV2Moe, DeepseekV3MoE.
template <typename Spec, typename Router>
struct DeepseekMoe {
  Experts experts;
  Router gate;
  GatedMlp shared_experts;

  DeepseekMoe(ModuleBuilder& b, const Spec& spec, bool mlp_bias)
      : experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })),
        gate(b.scope("gate", [&] { return Router(b, spec); })),
        shared_experts(b.scope("shared_experts", [&] {
          return GatedMlp(b, spec, checked_multiply(spec.experts.intermediate_size, spec.n_shared_experts), mlp_bias);
        })) {}

  [[nodiscard]] Tensor forward(const Tensor& residuals) const {
    const Routing routing = experts.local(gate.forward(residuals));
    Tensor hidden_states = view(residuals, {-1, residuals.size(-1)});
    hidden_states = view(experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights), residuals.shape());
    return hidden_states + shared_experts.forward(residuals);
  }
};

/// DeepseekV2DecoderLayer, DeepseekV3DecoderLayer: the first layers are dense.
template <typename Spec, typename SelfAttention, typename Moe>
struct DeepseekLayer : PreNormLayer<Spec, SelfAttention, RmsNorm, DenseOrMixture<Moe>> {
  using Mlp = DenseOrMixture<Moe>;

  DeepseekLayer(ModuleBuilder& b, const Spec& spec, const RunSpec& run, bool sliding, LayerIndex index, bool mlp_bias)
      : PreNormLayer<Spec, SelfAttention, RmsNorm, Mlp>(b, spec, run, sliding, [&] {
          return index.value >= spec.first_k_dense_replace ? Mlp{Moe(b, spec, mlp_bias)}
                                                           : Mlp{GatedMlp(b, spec, mlp_bias)};
        }) {}
};

}  // namespace memcalc
