// Nemotron-H: transformers models/nemotron_h.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/linear_attention_spec.h"

namespace memcalc {

/// Nemotron-H (models/nemotron_h): each layer is a mixer alone: Mamba-2, attention without positions, or an MLP.
struct NemotronHSpec : RotaryDecoderSpec {
  enum class Mixer : std::uint8_t { kMamba, kAttention, kMlp };

  std::vector<Mixer> layers;
  std::vector<bool> dense_layers;  // all: none is a mixture of experts
  Mamba2MixerSpec mamba;
  std::string mamba_hidden_act;
  bool mlp_bias = false;
};

BuildFamily build_nemotron_h;

namespace family {
extern const Family kNemotronH;
}  // namespace family

}  // namespace memcalc
