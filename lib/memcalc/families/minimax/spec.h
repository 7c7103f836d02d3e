// MiniMax-Text-01 and M1: transformers models/minimax.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// MiniMax-Text-01 (models/minimax): most layers have lightning attention, block by block; Mixtral's experts in all.
struct MiniMaxSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::int64_t block_size = 0;
  std::vector<bool> linear_layers;  // one for each layer
};

BuildFamily build_minimax;

namespace family {
extern const Family kMiniMax;
}  // namespace family

}  // namespace memcalc
