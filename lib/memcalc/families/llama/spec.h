// LLaMA and Mistral: transformers models/llama, models/mistral.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

struct DecoderPlan;

/// LLaMA 1 to 3.2, TinyLlama, SmolLM2 (models/llama) and Mistral (models/mistral), whose window holds for every layer.
struct LlamaSpec : RotaryDecoderSpec {
  bool mlp_bias = false;
};

BuildFamily build_llama;
/// It refers to both. A model of images and text builds its text model by it, too.
[[nodiscard]] DecoderPlan llama_plan(const Architecture& text, const RunSpec& run);
void llama_to_megatron(const Architecture& architecture, MegatronConfig& config);

namespace family {
extern const Family kLlama, kMistral;
}  // namespace family

}  // namespace memcalc
