// The text model of Llama 3.2 Vision: transformers models/mllama.
#pragma once

#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Llama 3.2 Vision's text (models/mllama): LLaMA with layers between that attend to images alone, which a text without
/// images passes by.
struct MllamaTextSpec : RotaryDecoderSpec {
  std::vector<bool> looks_at_images;  // cross_attention_layers: one for each layer
};

BuildFamily build_mllama_text;

namespace family {
extern const Family kMllama, kMllamaTextModel;
}  // namespace family

}  // namespace memcalc
