// ERNIE 4.5 without experts: transformers models/ernie4_5.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Baidu's ERNIE 4.5 (models/ernie4_5): LLaMA whose neighbours are rotated, in float32.
struct Ernie45Spec : RotaryDecoderSpec {
  bool use_bias = false;
};

BuildFamily build_ernie4_5;

namespace family {
extern const Family kErnie45;
}  // namespace family

}  // namespace memcalc
