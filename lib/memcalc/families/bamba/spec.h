// Bamba: transformers models/bamba.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/linear_attention_spec.h"

namespace memcalc {

/// Bamba (models/bamba): Mamba-2 in most layers, attention with positions on half of each head in the others, and an
/// MLP in each.
struct BambaSpec : RotaryDecoderSpec {
  std::vector<bool> linear_layers;  // one for each layer: Mamba-2
  Mamba2MixerSpec mamba;
  std::int64_t rotary_dim = 0;
  bool mlp_bias = false;
};

BuildFamily build_bamba;

namespace family {
extern const Family kBamba;
}  // namespace family

}  // namespace memcalc
