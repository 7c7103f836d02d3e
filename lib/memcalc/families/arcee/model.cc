// Arcee's AFM: transformers models/arcee/modeling_arcee.py.
// MIRRORS(transformers, "models/arcee/modeling_arcee.py", "5.17.0")
#include "memcalc/families/arcee/spec.h"
#include "memcalc/models/plain_mlp.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

namespace {

struct ArceeAttention : RotaryAttention {
  ArceeAttention(ModuleBuilder& b, const ArceeSpec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias) {}
};

using ArceeLayer = PreNormLayer<ArceeSpec, ArceeAttention, RmsNorm, PlainMlp>;

}  // namespace

std::unique_ptr<Model> build_arcee(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  const auto& spec = architecture.as<ArceeSpec>();
  return std::make_unique<RotaryDecoder>(spec, run, builder, decoder_plan<ArceeLayer>(spec, run));
}

}  // namespace memcalc
