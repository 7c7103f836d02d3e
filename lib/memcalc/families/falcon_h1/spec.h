// Falcon-H1: transformers models/falcon_h1.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/linear_attention_spec.h"

namespace memcalc {

/// Falcon-H1 (models/falcon_h1): attention and Mamba-2 side by side in every layer, everything multiplied by a number.
struct FalconH1Spec : RotaryDecoderSpec {
  Mamba2MixerSpec mamba;
  bool mlp_bias = false;
};

BuildFamily build_falcon_h1;

namespace family {
extern const Family kFalconH1;
}  // namespace family

}  // namespace memcalc
