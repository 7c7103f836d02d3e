// Phi-1 to 2: transformers models/phi.
#pragma once

#include <cstdint>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Phi-1 to 2 (models/phi): attention and MLP side by side behind one layer norm.
struct PhiSpec : RotaryDecoderSpec {
  std::int64_t rotary_dim = 0;
  bool qk_layernorm = false;
  double resid_pdrop = 0;
  double embd_pdrop = 0;
};

BuildFamily build_phi;

namespace family {
extern const Family kPhi;
}  // namespace family

}  // namespace memcalc
