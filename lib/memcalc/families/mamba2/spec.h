// Mamba-2: transformers models/mamba2.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"
#include "memcalc/spec/linear_attention_spec.h"

namespace memcalc {

/// Mamba-2 (models/mamba2): mixers alone, without positions and attention.
struct Mamba2Spec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  Mamba2MixerSpec mixer;
  std::string hidden_act;
  bool residual_in_fp32 = true;
  bool tie_word_embeddings = false;
};

BuildFamily build_mamba2;

namespace family {
extern const Family kMamba2;
}  // namespace family

}  // namespace memcalc
