// SmolLM3: transformers models/smollm3/modeling_smollm3.py.
// MIRRORS(transformers, "models/smollm3/modeling_smollm3.py", "5.17.0")
#include "memcalc/families/smollm3/spec.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

namespace {

struct SmolLm3Attention : RotaryAttention {
  SmolLm3Attention(ModuleBuilder& b, const SmolLm3Spec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias) {}
};

struct SmolLm3Layer : PreNormLayer<SmolLm3Spec, SmolLm3Attention, RmsNorm> {
  SmolLm3Layer(ModuleBuilder& b, const SmolLm3Spec& spec, const RunSpec& run, bool sliding, LayerIndex index)
      : PreNormLayer(b, spec, run, sliding, [&] { return GatedMlp(b, spec, spec.mlp_bias); }) {
    self_attn.rotates = spec.rotates[static_cast<std::size_t>(index.value)];
  }
};

}  // namespace

std::unique_ptr<Model> build_smollm3(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<SmolLm3Spec>();
  auto plan = decoder_plan<SmolLm3Layer>(spec, run);
  plan.masks = MaskPlan::mapped(spec.sliding_layers);
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
