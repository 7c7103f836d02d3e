// LLaMA and Mistral: transformers models/llama/modeling_llama.py, models/mistral/modeling_mistral.py.
// MIRRORS(transformers, "models/llama/modeling_llama.py", "5.17.0")
// MIRRORS(transformers, "models/mistral/modeling_mistral.py", "5.17.0")
#include "memcalc/families/llama/spec.h"
#include "memcalc/models/megatron_config.h"
#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

namespace {

struct LlamaAttention : RotaryAttention {
  LlamaAttention(ModuleBuilder& b, const LlamaSpec& spec, const RunSpec& run, bool sliding)
      : RotaryAttention(b, spec, causal_attention(run, spec.attention_dropout), sliding, spec.attention_bias,
                        spec.attention_bias) {}
};

struct LlamaLayer : PreNormLayer<LlamaSpec, LlamaAttention, RmsNorm> {
  LlamaLayer(ModuleBuilder& b, const LlamaSpec& spec, const RunSpec& run, bool sliding)
      : PreNormLayer(b, spec, run, sliding, [&] { return GatedMlp(b, spec, spec.mlp_bias); }) {}
};

}  // namespace

DecoderPlan llama_plan(const Architecture& architecture, const RunSpec& run) {
  return decoder_plan<LlamaLayer>(architecture.as<LlamaSpec>(), run);
}

std::unique_ptr<Model> build_llama(const Architecture& architecture, const RunSpec& run, ModuleBuilder& builder) {
  return std::make_unique<RotaryDecoder>(architecture.as<LlamaSpec>(), run, builder, llama_plan(architecture, run));
}

void llama_to_megatron(const Architecture& architecture, MegatronConfig& config) {
  const auto& spec = architecture.as<LlamaSpec>();
  take_decoder(config, spec);
}

}  // namespace memcalc
