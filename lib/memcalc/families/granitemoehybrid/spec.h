// Granite 4 with Mamba-2 layers: transformers models/granitemoehybrid.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/linear_attention_spec.h"

namespace memcalc {

/// Granite 4 hybrids without experts (models/granitemoehybrid): Mamba-2 in most layers, attention with or without
/// positions in the others, and an MLP in each.
struct GraniteHybridSpec : RotaryDecoderSpec {
  std::vector<bool> linear_layers;  // one for each layer: Mamba-2
  std::vector<bool> dense_layers;   // all, where there are no experts
  Mamba2MixerSpec mamba;
  bool has_positions = false;  // position_embedding_type "rope"
  std::int64_t shared_intermediate_size = 0;
};

/// With experts beside the MLP of every layer.
struct GraniteMoeHybridSpec : GraniteHybridSpec {
  ExpertsSpec experts;
};

BuildFamily build_granitemoehybrid;

namespace family {
extern const Family kGraniteMoeHybrid;
}  // namespace family

}  // namespace memcalc
