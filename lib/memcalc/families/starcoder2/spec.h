// StarCoder2: transformers models/starcoder2.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// StarCoder2 (models/starcoder2): layer norms, biases, an MLP without a gate, dropout behind each half.
struct Starcoder2Spec : RotaryDecoderSpec {
  bool use_bias = true;
  double residual_dropout = 0;
  double embedding_dropout = 0;
};

BuildFamily build_starcoder2;

namespace family {
extern const Family kStarcoder2;
}  // namespace family

}  // namespace memcalc
