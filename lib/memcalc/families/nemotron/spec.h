// Nemotron-3 and 4, Minitron: transformers models/nemotron.
#pragma once

#include <cstdint>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Nemotron (models/nemotron): LayerNorm times 1 + weight, an MLP without a gate, positions on a part of each head.
struct NemotronSpec : RotaryDecoderSpec {
  std::int64_t rotary_dim = 0;
  bool mlp_bias = false;
};

BuildFamily build_nemotron;

namespace family {
extern const Family kNemotron;
}  // namespace family

}  // namespace memcalc
