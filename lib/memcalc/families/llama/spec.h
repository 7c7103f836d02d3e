// LLaMA and Mistral: transformers models/llama, models/mistral.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// LLaMA 1 to 3.2, TinyLlama, SmolLM2 (models/llama) and Mistral (models/mistral), whose window holds for every layer.
struct LlamaSpec : RotaryDecoderSpec {
  bool mlp_bias = false;
};

BuildFamily build_llama;
void llama_to_megatron(const Architecture& architecture, MegatronConfig& config);

namespace family {
extern const Family kLlama, kMistral;
}  // namespace family

}  // namespace memcalc
