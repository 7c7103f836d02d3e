// Qwen1.5-MoE and Qwen2-MoE: transformers models/qwen2_moe/modeling_qwen2_moe.py.
// MIRRORS(transformers, "models/qwen2_moe/modeling_qwen2_moe.py", "5.17.0")
#include "memcalc/families/qwen2_moe/spec.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

struct Qwen2MoeAttention : RotaryAttention {
  Qwen2MoeAttention(ModuleBuilder& b, const Qwen2MoeSpec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.qkv_bias,
                        /*output_bias=*/false) {}
};

struct Qwen2MoeSparseMoeBlock {
  SoftmaxRouter gate;
  Experts experts;
  GatedMlp shared_expert;
  Linear shared_expert_gate;

  Qwen2MoeSparseMoeBlock(ModuleBuilder& b, const Qwen2MoeSpec& spec)
      : gate(b.scope("gate", [&] { return SoftmaxRouter(b, spec); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })),
        shared_expert(
            b.scope("shared_expert", [&] { return GatedMlp(b, spec, spec.shared_expert_intermediate_size, false); })),
        shared_expert_gate(b, "shared_expert_gate", spec.hidden_size, 1, false) {}

  [[nodiscard]] Tensor forward(const Tensor& hidden_states) const {
    Tensor shared_expert_output, expert_output;
    const Tensor hidden_states_reshaped = view(hidden_states, {-1, hidden_states.size(-1)});
    shared_expert_output = shared_expert.forward(hidden_states_reshaped);
    const Routing routing = experts.local(gate.forward(hidden_states_reshaped));
    const Locals locals(shared_expert_output);
    expert_output = experts.forward(hidden_states_reshaped, routing.top_k_index, routing.top_k_weights);
    shared_expert_output = sigmoid(shared_expert_gate(hidden_states_reshaped)) * shared_expert_output;
    expert_output = expert_output + shared_expert_output;
    return reshape(expert_output, hidden_states.shape());
  }
};

using Qwen2MoeMlp = DenseOrMixture<Qwen2MoeSparseMoeBlock>;

struct Qwen2MoeLayer : PreNormLayer<Qwen2MoeSpec, Qwen2MoeAttention, RmsNorm, Qwen2MoeMlp> {
  Qwen2MoeLayer(ModuleBuilder& b, const Qwen2MoeSpec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : PreNormLayer(b, spec, run, sliding, [&] {
          const bool dense = spec.dense_layers[static_cast<std::size_t>(index.value)];
          return dense ? Qwen2MoeMlp{GatedMlp(b, spec)} : Qwen2MoeMlp{Qwen2MoeSparseMoeBlock(b, spec)};
        }) {}
};

}  // namespace

std::unique_ptr<Model> build_qwen2_moe(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Qwen2MoeSpec>();
  auto plan = decoder_plan<Qwen2MoeLayer>(spec, run);
  // Both masks are made, whether layers slide or not; where none may, the configuration's window is 0.
  plan.masks = {.sliding = true, .mapping = true, .sliding_layers = spec.sliding_layers};
  plan.position_ids_first = true;
  RotaryDecoderSpec sizes = spec;
  if (!sizes.sliding_window) sizes.sliding_window = 0;
  return std::make_unique<RotaryDecoder>(sizes, run, builder, plan);
}

}  // namespace memcalc
