// Phi-3 and Phi-4: transformers models/phi3.
#pragma once

#include <cstdint>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Phi-3 and Phi-4 (models/phi3): fused projections.
struct Phi3Spec : RotaryDecoderSpec {
  std::int64_t rotary_dim = 0;  // of head_dim: the part that is rotated
  double resid_pdrop = 0;
};

BuildFamily build_phi3;

namespace family {
extern const Family kPhi3;
}  // namespace family

}  // namespace memcalc
