// MiniMax-M2: transformers models/minimax_m2/modeling_minimax_m2.py.
// MIRRORS(transformers, "models/minimax_m2/modeling_minimax_m2.py", "5.17.0")
#include "memcalc/families/minimax_m2/spec.h"
#include "memcalc/models/experts.h"
#include "memcalc/models/normed_attention.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct MiniMaxM2Attention : WholeNormedAttention {
  MiniMaxM2Attention(ModuleBuilder& b, const MiniMaxM2Spec& spec, const RunSpec& run, bool sliding)
      : WholeNormedAttention(b, spec, run, sliding) {
    rotates_part = true;
  }
};

struct MiniMaxM2SparseMoeBlock {
  SigmoidRouter gate;
  Experts experts;
  Tensor e_score_correction_bias;

  MiniMaxM2SparseMoeBlock(ModuleBuilder& b, const MiniMaxM2Spec& spec)
      : gate(b.scope("gate", [&] { return SigmoidRouter(b, spec); })),
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
