// Command R: transformers models/cohere, models/cohere2.
#pragma once

#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Cohere's Command R (models/cohere) and R7B, A (models/cohere2), which has local layers and no positions in the
/// others: both halves side by side, neighbours are rotated in float32.
struct CohereSpec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;  // of cohere2; empty: cohere
  bool use_qk_norm = false;          // of cohere: query and key are normalised (Command R+)
};

BuildFamily build_cohere;

namespace family {
extern const Family kCohere, kCohere2;
}  // namespace family

}  // namespace memcalc
