// ERNIE 4.5 without experts: transformers models/ernie4_5/modeling_ernie4_5.py.
// MIRRORS(transformers, "models/ernie4_5/modeling_ernie4_5.py", "5.17.0")
#include "memcalc/families/ernie4_5/spec.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

namespace {

struct Ernie45Attention : RotaryAttention {
  Ernie45Attention(ModuleBuilder& b, const Ernie45Spec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.use_bias, spec.use_bias) {
    rotation = rotate_neighbours_in_float32;
  }
};

struct Ernie45Layer : PreNormLayer<Ernie45Spec, Ernie45Attention, RmsNorm> {
  Ernie45Layer(ModuleBuilder& b, const Ernie45Spec& spec, const RunSpec& run, bool sliding)
      : PreNormLayer(b, spec, run, sliding, [&] { return GatedMlp(b, spec, spec.use_bias); }) {}
};

}  // namespace

std::unique_ptr<Model> build_ernie4_5(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<Ernie45Spec>();
  auto plan = decoder_plan<Ernie45Layer>(spec, run);
  plan.float32_positions = true;
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
