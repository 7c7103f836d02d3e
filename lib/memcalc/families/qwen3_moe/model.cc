// Qwen3-MoE: transformers models/qwen3_moe/modeling_qwen3_moe.py.
// MIRRORS(transformers, "models/qwen3_moe/modeling_qwen3_moe.py", "5.17.0")
#include "memcalc/families/qwen3_moe/spec.h"
#include "memcalc/models/expert_loop.h"
#include "memcalc/models/experts.h"
#include "memcalc/models/megatron_config.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct Qwen3MoeSparseMoeBlock {
  Experts experts;
  SoftmaxRouter gate;

  Qwen3MoeSparseMoeBlock(ModuleBuilder& b, const Qwen3MoeSpec& spec)
      : experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })),
        gate(b.scope("gate", [&] { return SoftmaxRouter(b, spec); })) {}

  [[nodiscard]] Tensor forward(const Tensor& hidden_states) const {
    const Tensor hidden_states_reshaped = view(hidden_states, {-1, hidden_states.size(-1)});
    const Routing routing = experts.local(gate.forward(hidden_states_reshaped));
    const Tensor final_hidden_states =
        experts.forward(hidden_states_reshaped, routing.top_k_index, routing.top_k_weights);
    return reshape(final_hidden_states, hidden_states.shape());
  }
};

struct Qwen3MoeMixture : FusedOrLoop<Qwen3MoeSparseMoeBlock> {
  Qwen3MoeMixture(ModuleBuilder& b, const Qwen3MoeSpec& spec)
      : FusedOrLoop(b, spec, spec.norm_topk_prob, kQwenExperts) {}
};

using Qwen3MoeMlp = DenseOrMixture<Qwen3MoeMixture>;

struct Qwen3MoeLayer : PreNormLayer<Qwen3MoeSpec, NormedRotaryAttention, RmsNorm, Qwen3MoeMlp> {
  Qwen3MoeLayer(ModuleBuilder& b, const Qwen3MoeSpec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : PreNormLayer(b, spec, run, sliding, [&] {
          const bool dense = spec.dense_layers[static_cast<std::size_t>(index.value)];
          return dense ? Qwen3MoeMlp{GatedMlp(b, spec)} : Qwen3MoeMlp{Qwen3MoeMixture(b, spec)};
        }) {}
};

}  // namespace

DecoderPlan qwen3_moe_plan(const Architecture& architecture, const RunSpec& run) {
  return decoder_plan<Qwen3MoeLayer>(architecture.as<Qwen3MoeSpec>(), run);
}

std::unique_ptr<Model> build_qwen3_moe(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  auto plan = qwen3_moe_plan(architecture, run);
  plan.position_ids_first = true;
  return std::make_unique<RotaryDecoder>(architecture.as<Qwen3MoeSpec>(), run, builder, plan);
}

void qwen3_moe_to_megatron(const Architecture& architecture, MegatronConfig& config) {
  const auto& spec = architecture.as<Qwen3MoeSpec>();
  take_decoder(config, spec);
  config.qk_layernorm = true;
  config.moe = MegatronExperts{spec.experts, 0, spec.dense_layers};
}

}  // namespace memcalc
