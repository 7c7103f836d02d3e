// DeepSeek-V3 and R1: transformers models/deepseek_v3/modeling_deepseek_v3.py. Its multi-token-prediction module is
// used in generation only.
// MIRRORS(transformers, "models/deepseek_v3/modeling_deepseek_v3.py", "5.17.0")
#include "memcalc/families/deepseek/latent.h"
#include "memcalc/families/deepseek/spec.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"

namespace memcalc {

namespace {

/// cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin]) of the even and the odd numbers of x.
Tensor rotate_pairs(const Tensor& x1, const Tensor& x2, const Tensor& cos, const Tensor& sin) {
  Tensor first_cos = x1 * cos;
  Tensor second_sin = x2 * sin;
  Tensor first = std::move(first_cos) - std::move(second_sin);
  Tensor second_cos = x2 * cos;
  Tensor first_sin = x1 * sin;
  Tensor second = std::move(second_cos) + std::move(first_sin);
  Tensor rotated = cat(first, second, -1);
  drop(second, first);  // a Python list dies from its end
  return rotated;
}

/// apply_rotary_pos_emb_interleave
void rotate_interleaved(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  const std::int64_t half = positions.cos.size(-1) / 2;
  const Tensor cos = unsqueeze(slice(positions.cos, -1, 0, half), 1);
  const Tensor sin = unsqueeze(slice(positions.sin, -1, 0, half), 1);
  const Tensor q1 = every_second(query, -1), q2 = every_second(query, -1);
  const Tensor k1 = every_second(key, -1), k2 = every_second(key, -1);
  Tensor q_embed = rotate_pairs(q1, q2, cos, sin);
  Tensor k_embed = rotate_pairs(k1, k2, cos, sin);
  query = std::move(q_embed);
  key = std::move(k_embed);
}

void rotate_halves(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  apply_rotary(query, key, positions.cos, positions.sin);
}

struct DeepseekV3Attention : LatentAttention {
  DeepseekV3Attention(ModuleBuilder& b, const DeepseekV3Spec& spec, const RunSpec& run, bool)
      : LatentAttention(b, spec, run, spec.rope_interleave ? rotate_interleaved : rotate_halves) {}
};

struct DeepseekV3TopkRouter {
  std::int64_t top_k, num_group, topk_group;
  bool norm_topk_prob;
  Tensor weight, e_score_correction_bias;

  DeepseekV3TopkRouter(ModuleBuilder& b, const DeepseekV3Spec& spec)
      : top_k(spec.experts.per_token),
        num_group(spec.n_group),
        topk_group(spec.topk_group),
        norm_topk_prob(spec.norm_topk_prob),
        weight(b.parameter("weight", {spec.experts.count, spec.hidden_size})),
        e_score_correction_bias(b.buffer({spec.experts.count}, b.dtype)) {}

  [[nodiscard]] Routing forward(const Tensor& input) const {
    Tensor hidden_states, scores, scores_for_choice, group_scores, group_idx, group_mask, score_mask, denominator;
    const Locals locals(hidden_states, scores, scores_for_choice, group_scores, group_idx, group_mask, score_mask,
                        denominator);
    hidden_states = view(input, {-1, input.size(-1)});
    Tensor router_logits = float32_linear(hidden_states, weight);
    scores = sigmoid(router_logits);
    scores_for_choice = scores + e_score_correction_bias;
    group_scores = topk(by_group(scores_for_choice, num_group), 2).values;
    group_scores = sum_over(group_scores, -1, false);
    limit_to_groups(group_scores, topk_group, scores.size(1), group_idx, group_mask, score_mask);
    scores_for_choice = fill_other_groups(scores_for_choice, score_mask);
    Tensor topk_indices = topk(scores_for_choice, top_k).indices;
    Tensor topk_weights = gather(scores, topk_indices);
    if (norm_topk_prob) {
      denominator = sum_over(topk_weights, -1, true);
      denominator = add_scalar(denominator);
      topk_weights = divide_in_place(topk_weights, denominator);
    }
    topk_weights = multiply_scalar(topk_weights);  // * routed_scaling_factor
    return {std::move(router_logits), std::move(topk_weights), std::move(topk_indices)};
  }
};

using DeepseekV3Moe = DeepseekMoe<DeepseekV3Spec, DeepseekV3TopkRouter>;

struct DeepseekV3Layer : DeepseekLayer<DeepseekV3Spec, DeepseekV3Attention, DeepseekV3Moe> {
  DeepseekV3Layer(ModuleBuilder& b, const DeepseekV3Spec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : DeepseekLayer(b, spec, run, sliding, index, /*mlp_bias=*/false) {}
};

}  // namespace

std::unique_ptr<Model> build_deepseek_v3(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<DeepseekV3Spec>();
  return std::make_unique<RotaryDecoder>(spec, run, builder, decoder_plan<DeepseekV3Layer>(spec, run));
}

}  // namespace memcalc
