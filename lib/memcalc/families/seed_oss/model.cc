// Seed-OSS: transformers models/seed_oss/modeling_seed_oss.py.
// MIRRORS(transformers, "models/seed_oss/modeling_seed_oss.py", "5.17.0")
#include "memcalc/families/seed_oss/spec.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

namespace {

struct SeedOssAttention : RotaryAttention {
  SeedOssAttention(ModuleBuilder& b, const SeedOssSpec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_out_bias) {
    output_dropout = dropout_probability(run, spec.residual_dropout);
  }
};

struct SeedOssLayer : PreNormLayer<SeedOssSpec, SeedOssAttention, RmsNorm> {
  SeedOssLayer(ModuleBuilder& b, const SeedOssSpec& spec, const RunSpec& run, bool sliding)
      : PreNormLayer(b, spec, run, sliding, [&] { return GatedMlp(b, spec, spec.mlp_bias); }) {
    mlp.output_dropout = dropout_probability(run, spec.residual_dropout);
  }
};

}  // namespace

std::unique_ptr<Model> build_seed_oss(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<SeedOssSpec>();
  return std::make_unique<RotaryDecoder>(spec, run, builder, decoder_plan<SeedOssLayer>(spec, run));
}

}  // namespace memcalc
