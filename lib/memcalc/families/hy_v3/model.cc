// Hunyuan 3: transformers models/hy_v3/modeling_hy_v3.py.
// MIRRORS(transformers, "models/hy_v3/modeling_hy_v3.py", "5.17.0")
#include "memcalc/families/hy_v3/spec.h"
#include "memcalc/models/experts.h"
#include "memcalc/models/normed_attention.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct HyV3TopKRouter {
  std::int64_t top_k;
  RouterWeight weight;

  HyV3TopKRouter(ModuleBuilder& b, const HyV3Spec& spec) : top_k(spec.experts.per_token), weight(b, spec) {}

  [[nodiscard]] Routing forward(const Tensor& input, const Tensor& e_score_correction_bias) const {
    ActiveWrappers wrappers(weight.wrapped.get());
    Tensor hidden_states, routing_weights, scores_for_choice, scores_of_chosen;
    const Locals locals(hidden_states, routing_weights, scores_for_choice, scores_of_chosen);
    hidden_states = reshape(input, {-1, input.size(-1)});
    Tensor router_logits = float32_linear(hidden_states, weight.parameter, wrappers);
    routing_weights = sigmoid(router_logits);
    scores_for_choice = routing_weights + e_score_correction_bias;
    Selection chosen = topk(scores_for_choice, top_k, false);
    scores_of_chosen = std::move(chosen.values);
    Tensor top_k_weights = gather(routing_weights, chosen.indices);
    {
      Tensor sums = add_scalar(sum_over(top_k_weights, -1, true));
      top_k_weights = divide_both(top_k_weights, std::move(sums));
    }
    top_k_weights = multiply_scalar(top_k_weights);
    return {std::move(router_logits), std::move(top_k_weights), std::move(chosen.indices)};
  }
};

struct HyV3Moe {
  HyV3TopKRouter gate;
  Experts experts;
  Tensor e_score_correction_bias;
  GatedMlp shared_experts;
  bool combines_in_float32;

  HyV3Moe(ModuleBuilder& b, const HyV3Spec& spec)
      : gate(b.scope("gate", [&] { return HyV3TopKRouter(b, spec); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })),
        e_score_correction_bias(b.buffer({spec.experts.count}, b.dtype)),
        shared_experts(b.scope("shared_experts",
                               [&] {
                                 const std::int64_t width =
                                     checked_multiply(spec.experts.intermediate_size, spec.num_shared_experts);
                                 return GatedMlp(b, spec, width, false);
                               })),
        combines_in_float32(spec.enable_moe_fp32_combine) {}

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor hidden_states = view(input, {-1, input.size(-1)});
    Tensor routed_output;
    Routing routing = experts.local(gate.forward(hidden_states, e_score_correction_bias));
    const Locals locals(routing.router_logits, routing.top_k_weights, routing.top_k_index, routed_output);
    routed_output = experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights);
    if (combines_in_float32) {
      Tensor routed = to_dtype(routed_output, DType::kFloat32);
      Tensor shared = to_dtype(shared_experts.forward(hidden_states), DType::kFloat32);
      Tensor both = routed + shared;
      drop(routed, shared);
      hidden_states = to_dtype(both, input.dtype());
    } else {
      hidden_states = routed_output + shared_experts.forward(hidden_states);
    }
    return reshape(hidden_states, input.shape());
  }
};

using HyV3Mlp = DenseOrMixture<HyV3Moe>;

struct HyV3Layer : PreNormLayer<HyV3Spec, TransposedNormedAttention, RmsNorm, HyV3Mlp> {
  HyV3Layer(ModuleBuilder& b, const HyV3Spec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : PreNormLayer(b, spec, run, sliding, [&] {
          return spec.dense_layers[static_cast<std::size_t>(index.value)] ? HyV3Mlp{GatedMlp(b, spec)}
                                                                          : HyV3Mlp{HyV3Moe(b, spec)};
        }) {}
};

}  // namespace

std::unique_ptr<Model> build_hy_v3(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<HyV3Spec>();
  auto plan = decoder_plan<HyV3Layer>(spec, run);
  plan.position_ids_first = true;
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
