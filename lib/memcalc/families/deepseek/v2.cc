// DeepSeek-V2: transformers models/deepseek_v2/modeling_deepseek_v2.py.
// MIRRORS(transformers, "models/deepseek_v2/modeling_deepseek_v2.py", "5.17.0")
#include "memcalc/families/deepseek/latent.h"
#include "memcalc/families/deepseek/spec.h"
#include "memcalc/models/complex_rotary.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/sort.h"

namespace memcalc {

namespace {

/// apply_rotary_emb
void rotate_complex(Tensor& query, Tensor& key, const RotaryPositions& positions) {
  Tensor xq = as_complex(query);
  Tensor xk = as_complex(key);
  const Tensor freqs_cis = unsqueeze(positions.cos, 1);
  Tensor xq_out = to_dtype(rotated_complex(query, xq, freqs_cis), query.dtype());
  Tensor xk_out = to_dtype(rotated_complex(key, xk, freqs_cis), key.dtype());
  drop(xq, xk);
  query = std::move(xq_out);
  key = std::move(xk_out);
}

struct DeepseekV2Attention : LatentAttention {
  DeepseekV2Attention(ModuleBuilder& b, const DeepseekV2Spec& spec, const RunSpec& run, bool)
      : LatentAttention(b, spec, run, rotate_complex) {
    rotated_key_dies_first = true;
  }
};

struct DeepseekV2TopkRouter {
  std::int64_t top_k, num_group, topk_group;
  RouterWeight weight;

  DeepseekV2TopkRouter(ModuleBuilder& b, const DeepseekV2Spec& spec)
      : top_k(spec.experts.per_token), num_group(spec.n_group), topk_group(spec.topk_group), weight(b, spec) {}

  [[nodiscard]] Routing forward(const Tensor& input) const {
    ActiveWrappers wrappers(weight.wrapped.get());
    Tensor hidden_states, scores, group_scores, group_idx, group_mask, score_mask;
    const Locals locals(hidden_states, scores, group_scores, group_idx, group_mask, score_mask);
    hidden_states = view(input, {-1, input.size(-1)});
    Tensor router_logits = float32_linear(hidden_states, weight.parameter, wrappers);
    scores = softmax(router_logits, DType::kFloat32);
    if (num_group > 0) {  // "group_limited_greedy"
      group_scores = max_along(by_group(scores, num_group), 2, false).values;
      limit_to_groups(group_scores, topk_group, scores.size(1), group_idx, group_mask, score_mask);
      scores = fill_other_groups(scores, score_mask);
    }
    auto [topk_weights, topk_indices] = topk(scores, top_k);
    topk_weights = multiply_scalar(topk_weights);  // * routed_scaling_factor
    return {std::move(router_logits), std::move(topk_weights), std::move(topk_indices)};
  }
};

using DeepseekV2Moe = MixtureWithShared<DeepseekV2Spec, DeepseekV2TopkRouter>;

struct DeepseekV2Layer : DenseFirstLayer<DeepseekV2Spec, DeepseekV2Attention, DeepseekV2Moe> {
  DeepseekV2Layer(ModuleBuilder& b, const DeepseekV2Spec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : DenseFirstLayer(b, spec, run, sliding, index, spec.mlp_bias) {}
};

}  // namespace

std::unique_ptr<Model> build_deepseek_v2(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<DeepseekV2Spec>();
  auto plan = decoder_plan<DeepseekV2Layer>(spec, run);
  plan.rotate = complex_positions;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
