// MiniMax-M2: transformers models/minimax_m2/modeling_minimax_m2.py.
// MIRRORS(transformers, "models/minimax_m2/modeling_minimax_m2.py", "5.17.0")
#include "memcalc/families/minimax_m2/spec.h"
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

struct MiniMaxM2Attention : WholeNormedAttention {
  MiniMaxM2Attention(ModuleBuilder& b, const MiniMaxM2Spec& spec, const RunSpec& run, bool sliding)
      : WholeNormedAttention(b, spec, run, sliding) {
    rotates_part = true;
  }
};

struct MiniMaxM2TopKRouter {
  std::int64_t top_k;
  RouterWeight weight;

  MiniMaxM2TopKRouter(ModuleBuilder& b, const MiniMaxM2Spec& spec) : top_k(spec.experts.per_token), weight(b, spec) {}

  [[nodiscard]] Routing forward(const Tensor& input, const Tensor& e_score_correction_bias) const {
    ActiveWrappers wrappers(weight.wrapped.get());
    Tensor hidden_states, routing_weights, scores_for_choice, scores_of_chosen;
    const Locals locals(hidden_states, routing_weights, scores_for_choice, scores_of_chosen);
    hidden_states = reshape(input, {-1, input.size(-1)});
    const Tensor matrix = wrappers.read(weight.parameter);
    Tensor router_logits = linear(to_dtype(hidden_states, matrix.dtype()), matrix, {});
    routing_weights = sigmoid(to_dtype(router_logits, DType::kFloat32));
    scores_for_choice = routing_weights + e_score_correction_bias;
    Selection chosen = topk(scores_for_choice, top_k);
    scores_of_chosen = std::move(chosen.values);
    Tensor top_k_weights = gather(routing_weights, chosen.indices);
    top_k_weights = divide_in_place(top_k_weights, sum_over(top_k_weights, -1, true));
    return {std::move(router_logits), std::move(top_k_weights), std::move(chosen.indices)};
  }
};

struct MiniMaxM2SparseMoeBlock {
  MiniMaxM2TopKRouter gate;
  Experts experts;
  Tensor e_score_correction_bias;

  MiniMaxM2SparseMoeBlock(ModuleBuilder& b, const MiniMaxM2Spec& spec)
      : gate(b.scope("gate", [&] { return MiniMaxM2TopKRouter(b, spec); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })),
        e_score_correction_bias(b.buffer({spec.experts.count}, b.dtype)) {}

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor hidden_states = view(input, {-1, input.size(-1)});
    const Routing routing = experts.local(gate.forward(hidden_states, e_score_correction_bias));
    hidden_states = experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights);
    return reshape(hidden_states, input.shape());
  }
};

using MiniMaxM2Layer = PreNormLayer<MiniMaxM2Spec, MiniMaxM2Attention, RmsNorm, MiniMaxM2SparseMoeBlock>;

}  // namespace

std::unique_ptr<Model> build_minimax_m2(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<MiniMaxM2Spec>();
  auto plan = decoder_plan<MiniMaxM2Layer>(spec, run);
  plan.rotary_dim = spec.rotary_dim;
  plan.position_ids_first = true;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
