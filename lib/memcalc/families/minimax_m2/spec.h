// MiniMax-M2: transformers models/minimax_m2.
#pragma once

#include <cstdint>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// MiniMax-M2 (models/minimax_m2): experts in every layer, chosen by sigmoids and a correction; query and key are
/// normalised over all heads at once.
struct MiniMaxM2Spec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::int64_t rotary_dim = 0;
};

BuildFamily build_minimax_m2;

namespace family {
extern const Family kMiniMaxM2;
}  // namespace family

}  // namespace memcalc
