// Gemma 1 to 3: transformers models/gemma, models/gemma2, models/gemma3.
#pragma once

#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Gemma 1 (models/gemma): scaled embeddings, norms that multiply by 1 + weight.
struct GemmaSpec : RotaryDecoderSpec {};

/// Gemma 2 (models/gemma2): four norms a layer, soft caps, local and global layers in turn.
struct Gemma2Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;
  bool attention_softcap = true;  // attn_logit_softcapping: eager attention only
  bool final_softcap = true;      // final_logit_softcapping
};

/// Gemma 3's text model (models/gemma3): four norms, normalised query and key, rotary positions of two kinds.
struct Gemma3Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;
  bool final_softcap = false;
};

BuildFamily build_gemma;
BuildFamily build_gemma2;
BuildFamily build_gemma3;

namespace family {
extern const Family kGemma, kGemma2, kGemma3, kGemma3Text;
}  // namespace family

}  // namespace memcalc
