// Granite: transformers models/granite/modeling_granite.py.
// MIRRORS(transformers, "models/granite/modeling_granite.py", "5.17.0")
#include "memcalc/families/granite/spec.h"
#include "memcalc/models/multiplied_embedding.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

namespace {

struct GraniteAttention : RotaryAttention {
  GraniteAttention(ModuleBuilder& b, const GraniteSpec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias) {}
};

struct GraniteLayer : PreNormLayer<GraniteSpec, GraniteAttention, RmsNorm, GatedMlp, /*kScalesHalves=*/true> {
  GraniteLayer(ModuleBuilder& b, const GraniteSpec& spec, const RunSpec& run, bool sliding)
      : PreNormLayer(b, spec, run, sliding, [&] { return GatedMlp(b, spec, spec.mlp_bias); }) {}
};

}  // namespace

std::unique_ptr<Model> build_granite(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<GraniteSpec>();
  auto plan = decoder_plan<GraniteLayer>(spec, run);
  plan.embedding = embedding_of<MultipliedEmbedding>(spec);
  plan.logits = LogitsChange::kDivided;
  plan.position_ids_first = true;
  plan.has_classifier = false;
  return std::make_unique<RotaryDecoder>(spec, run, builder, plan);
}

}  // namespace memcalc
