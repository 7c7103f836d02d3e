// Mistral 4's text model: transformers models/mistral4/modeling_mistral4.py.
// MIRRORS(transformers, "models/mistral4/modeling_mistral4.py", "5.17.0")
#include "memcalc/families/mistral4/spec.h"

#include <memory>
#include <utility>

#include "memcalc/families/deepseek/latent.h"
#include "memcalc/models/position_scale.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct Mistral4Attention : LatentAttention {
  Mistral4Attention(ModuleBuilder& b, const Mistral4Spec& spec, const RunSpec& run, bool)
      : LatentAttention(b, spec, run, rotation_of_heads(spec.rope_interleave)) {
    scale_of_queries = position_scale;
    rotated_key_dies_first = true;
  }
};

/// Mistral4TopkRouter: DeepSeek-V3's groups over a softmax in the weights' own type.
struct Mistral4Router {
  std::int64_t top_k, num_group, topk_group;
  bool norm_topk_prob;
  RouterWeight weight;

  Mistral4Router(ModuleBuilder& b, const Mistral4Spec& spec)
      : top_k(spec.experts.per_token),
        num_group(spec.n_group),
        topk_group(spec.topk_group),
        norm_topk_prob(spec.norm_topk_prob),
        weight(b, spec) {}

  [[nodiscard]] Routing forward(const Tensor& input) const {
    ActiveWrappers wrappers(weight.wrapped.get());
    Tensor hidden_states, scores, group_scores, group_idx, group_mask, score_mask, scores_for_choice, denominator;
    const Locals locals(hidden_states, scores, group_scores, group_idx, group_mask, score_mask, scores_for_choice,
                        denominator);
    hidden_states = view(input, {-1, input.size(-1)});
    Tensor router_logits = linear(hidden_states, wrappers.read(weight.parameter), {});
    scores = softmax(router_logits);
    group_scores = topk(by_group(scores, num_group), 2).values;
    group_scores = sum_over(group_scores, -1, false);
    limit_to_groups(group_scores, topk_group, scores.size(1), group_idx, group_mask, score_mask);
    scores_for_choice = fill_other_groups(scores, score_mask);
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

struct Mistral4Layer
    : DenseFirstLayer<Mistral4Spec, Mistral4Attention, MixtureWithShared<Mistral4Spec, Mistral4Router>> {
  Mistral4Layer(ModuleBuilder& b, const Mistral4Spec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : DenseFirstLayer(b, spec, run, sliding, index, /*mlp_bias=*/false) {}
};

}  // namespace

std::unique_ptr<Model> build_mistral4(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Mistral4Spec>();
  return std::make_unique<RotaryDecoder>(spec, run, builder, decoder_plan<Mistral4Layer>(spec, run));
}

}  // namespace memcalc
