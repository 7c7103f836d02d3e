// Routers that several families of mixtures have: which experts a token takes, and with which weights.
// MIRRORS(transformers, "models/qwen3_moe/modeling_qwen3_moe.py", "5.17.0")
// MIRRORS(transformers, "models/minimax_m2/modeling_minimax_m2.py", "5.17.0")
// MIRRORS(transformers, "models/deepseek_v2/modeling_deepseek_v2.py", "5.17.0")
// MIRRORS(transformers, "models/deepseek_v3/modeling_deepseek_v3.py", "5.17.0")
#pragma once

#include <cstdint>

#include "memcalc/models/experts.h"

namespace memcalc {

/// A router, whose parameters were just made, in the module whose name is the prefix; null where it gets no adapters.
[[nodiscard]] std::shared_ptr<WrappedModule> remember_router(ModuleBuilder& b, std::size_t parameter_count);

/// self.weight of a router, and the adapter that peft may put around the module.
struct RouterWeight {
  Tensor parameter;
  std::shared_ptr<WrappedModule> wrapped;  // null: no adapters

  RouterWeight(ModuleBuilder& b, std::int64_t experts, std::int64_t hidden_size)
      : parameter(b.parameter("weight", {experts, hidden_size})), wrapped(remember_router(b, 1)) {}
  template <typename Spec>
  RouterWeight(ModuleBuilder& b, const Spec& spec) : RouterWeight(b, spec.experts.count, spec.hidden_size) {}
};

/// Qwen3MoeTopKRouter, which Qwen2-MoE's and OLMoE's repeat.
struct SoftmaxRouter {
  std::int64_t top_k;
  bool norm_topk_prob;
  RouterWeight weight;

  template <typename Spec>
  SoftmaxRouter(ModuleBuilder& b, const Spec& spec)
      : top_k(spec.experts.per_token), norm_topk_prob(spec.norm_topk_prob), weight(b, spec) {}

  [[nodiscard]] Routing forward(const Tensor& input) const;
};

/// MiniMaxM2TopKRouter, which MiniMax-M3's repeats: the best experts, by sigmoids and a correction.
struct SigmoidRouter {
  std::int64_t top_k;
  RouterWeight weight;

  template <typename Spec>
  SigmoidRouter(ModuleBuilder& b, const Spec& spec) : top_k(spec.experts.per_token), weight(b, spec) {}

  [[nodiscard]] Routing forward(const Tensor& input, const Tensor& e_score_correction_bias) const;
};

/// DeepseekV2TopkRouter, which DeepSeek-OCR's repeats: the best experts, of the best groups where there are groups.
struct GroupedSoftmaxRouter {
  std::int64_t top_k, num_group, topk_group;
  RouterWeight weight;

  template <typename Spec>
  GroupedSoftmaxRouter(ModuleBuilder& b, const Spec& spec)
      : top_k(spec.experts.per_token), num_group(spec.n_group), topk_group(spec.topk_group), weight(b, spec) {}

  [[nodiscard]] Routing forward(const Tensor& input) const;
};

/// How many experts of how many groups a token takes.
struct GroupedChoice {
  std::int64_t top_k, num_group, topk_group;
  bool norm_topk_prob;

  template <typename Spec>
  explicit GroupedChoice(const Spec& spec)
      : top_k(spec.experts.per_token),
        num_group(spec.n_group),
        topk_group(spec.topk_group),
        norm_topk_prob(spec.norm_topk_prob) {}
};
/// Variables of a router's forward, which says in which order they die.
struct GroupedChoiceVariables {
  Tensor scores_for_choice, group_scores, group_idx, group_mask, score_mask, denominator;
};
/// The best experts of the best groups by `judged`, weighed by `scores`. [tokens, experts] both.
[[nodiscard]] Routing choose_in_groups(const GroupedChoice& choice, Tensor router_logits, const Tensor& scores,
                                       const Tensor& judged, GroupedChoiceVariables& own);

/// DeepseekV3TopkRouter, which GLM-4.5's repeats: the best experts of the best groups, by sigmoids and a correction.
struct GroupedSigmoidRouter {
  GroupedChoice choice;
  RouterWeight weight;
  Tensor e_score_correction_bias;

  template <typename Spec>
  GroupedSigmoidRouter(ModuleBuilder& b, const Spec& spec) : GroupedSigmoidRouter(b, spec, b.dtype) {}
  template <typename Spec>
  GroupedSigmoidRouter(ModuleBuilder& b, const Spec& spec, DType correction)
      : choice(spec), weight(b, spec), e_score_correction_bias(b.buffer({spec.experts.count}, correction)) {}

  [[nodiscard]] Routing forward(const Tensor& input) const;
};

/// The experts of the `topk_group` best groups of each token. group_scores [tokens, groups]; score_mask [tokens,
/// experts] is one where an expert is in such a group.
void limit_to_groups(const Tensor& group_scores, std::int64_t topk_group, std::int64_t experts, Tensor& group_idx,
                     Tensor& group_mask, Tensor& score_mask);
/// scores.masked_fill(~score_mask.bool(), number)
[[nodiscard]] Tensor fill_other_groups(const Tensor& scores, const Tensor& score_mask);
/// F.linear(hidden_states.type(torch.float32), self.weight.type(torch.float32))
[[nodiscard]] Tensor float32_linear(const Tensor& hidden_states, const Tensor& weight, ActiveWrappers& wrappers);
/// scores.view(-1, groups, experts // groups)
[[nodiscard]] Tensor by_group(const Tensor& scores, std::int64_t groups);

/// DeepseekV2Moe, DeepseekV3MoE, Glm4MoeMoE: beside the experts that a token chooses some that every token takes.
template <typename Spec, typename Router>
struct MixtureWithShared {
  Experts experts;
  Router gate;
  GatedMlp shared_experts;

  MixtureWithShared(ModuleBuilder& b, const Spec& spec, bool mlp_bias)
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

/// DeepseekV2DecoderLayer, DeepseekV3DecoderLayer, Glm4MoeDecoderLayer: the first layers are dense.
template <typename Spec, typename SelfAttention, typename Moe>
struct DenseFirstLayer : PreNormLayer<Spec, SelfAttention, RmsNorm, DenseOrMixture<Moe>> {
  using Mlp = DenseOrMixture<Moe>;

  DenseFirstLayer(ModuleBuilder& b, const Spec& spec, const RunSpec& run, bool sliding, LayerIndex index, bool mlp_bias)
      : PreNormLayer<Spec, SelfAttention, RmsNorm, Mlp>(b, spec, run, sliding, [&] {
          return index.value >= spec.first_k_dense_replace ? Mlp{Moe(b, spec, mlp_bias)}
                                                           : Mlp{GatedMlp(b, spec, mlp_bias)};
        }) {}
};

}  // namespace memcalc
