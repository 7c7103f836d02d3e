// OLMoE: transformers models/olmoe/modeling_olmoe.py.
// MIRRORS(transformers, "models/olmoe/modeling_olmoe.py", "5.17.0")
#include "memcalc/families/olmoe/spec.h"
#include "memcalc/models/normed_attention.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct OlmoeSparseMoeBlock {
  SoftmaxRouter gate;
  Experts experts;

  OlmoeSparseMoeBlock(ModuleBuilder& b, const OlmoeSpec& spec)
      : gate(b.scope("gate", [&] { return SoftmaxRouter(b, spec); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })) {}

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    const Tensor hidden_states = view(input, {-1, input.size(-1)});
    const Routing routing = experts.local(gate.forward(hidden_states));
    return reshape(experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights), input.shape());
  }
};

using OlmoeLayer = PreNormLayer<OlmoeSpec, WholeNormedAttention, RmsNorm, OlmoeSparseMoeBlock>;

}  // namespace

std::unique_ptr<Model> build_olmoe(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<OlmoeSpec>();
  return std::make_unique<RotaryDecoder>(spec, run, builder, decoder_plan<OlmoeLayer>(spec, run));
}

}  // namespace memcalc
