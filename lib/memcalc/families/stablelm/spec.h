// StableLM: transformers models/stablelm.
#pragma once

#include <cstdint>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// StableLM 3B and 2 (models/stablelm): layer norms, positions on a part of each head, halves in turn or side by side.
struct StableLmSpec : RotaryDecoderSpec {
  std::int64_t rotary_dim = 0;  // of head_dim: the part that is rotated
  bool use_qkv_bias = false;
  bool use_parallel_residual = false;
  double hidden_dropout = 0;
};

BuildFamily build_stablelm;

namespace family {
extern const Family kStableLm;
}  // namespace family

}  // namespace memcalc
