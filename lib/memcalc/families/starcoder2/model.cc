// StarCoder2: transformers models/starcoder2/modeling_starcoder2.py.
// MIRRORS(transformers, "models/starcoder2/modeling_starcoder2.py", "5.17.0")
#include "memcalc/families/starcoder2/spec.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

namespace {

struct Starcoder2Attention : RotaryAttention {
  Starcoder2Attention(ModuleBuilder& b, const Starcoder2Spec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.use_bias, spec.use_bias) {
    output_dropout = dropout_probability(run, spec.residual_dropout);
  }
};

struct Mlp {
  Linear c_fc, c_proj;
  std::string act;
  double residual_dropout;

  Mlp(ModuleBuilder& b, const Starcoder2Spec& spec, const RunSpec& run)
      : c_fc(b, "c_fc", spec.hidden_size, spec.intermediate_size, spec.use_bias),
        c_proj(b, "c_proj", spec.intermediate_size, spec.hidden_size, spec.use_bias),
        act(spec.hidden_act),
        residual_dropout(dropout_probability(run, spec.residual_dropout)) {}

  [[nodiscard]] Tensor forward(const Tensor& x) const {
    Tensor hidden_states = c_fc(x);
    hidden_states = activation_function(act, hidden_states);
    hidden_states = c_proj(hidden_states);
    return dropout(hidden_states, residual_dropout);
  }
};

struct Starcoder2Layer : PreNormLayer<Starcoder2Spec, Starcoder2Attention, LayerNorm, Mlp> {
  Starcoder2Layer(ModuleBuilder& b, const Starcoder2Spec& spec, const RunSpec& run, bool sliding)
      : PreNormLayer(b, spec, run, sliding, [&] { return Mlp(b, spec, run); }) {}
};

}  // namespace

std::unique_ptr<Model> build_starcoder2(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Starcoder2Spec>();
  auto plan = decoder_plan<Starcoder2Layer, LayerNorm>(spec, run);
  plan.embedding_dropout = dropout_probability(run, spec.embedding_dropout);
  plan.position_ids_first = true;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
