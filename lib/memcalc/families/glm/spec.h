// GLM 4: transformers models/glm, models/glm4.
#pragma once

#include <cstdint>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// GLM-4 of 2024 (models/glm) and of 2025 (models/glm4), whose layers have two more norms: neighbours are rotated in a
/// part of each head, the MLP's projections are one.
struct GlmSpec : RotaryDecoderSpec {
  std::int64_t rotary_dim = 0;  // of head_dim: the part that is rotated
};

BuildFamily build_glm;
BuildFamily build_glm4;

namespace family {
extern const Family kGlm, kGlm4;
}  // namespace family

}  // namespace memcalc
