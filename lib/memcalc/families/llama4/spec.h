// The text model of Llama 4: transformers models/llama4.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Llama 4's text, MobileLLM-R1 (models/llama4): chunks in the layers with positions, none in the others; mixtures of
/// which every expert sees every token.
struct Llama4TextSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::int64_t intermediate_size_mlp = 0;  // of dense layers
  std::vector<bool> dense_layers;
  std::vector<bool> sliding_layers;  // chunked
  std::vector<bool> rotates;         // no_rope_layers: 1 where there are positions
  bool use_qk_norm = true;
  bool attn_temperature_tuning = true;
};

BuildFamily build_llama4_text;

namespace family {
extern const Family kLlama4, kLlama4Text;
}  // namespace family

}  // namespace memcalc
