// Hunyuan V1 without experts: transformers models/hunyuan_v1_dense.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Tencent's Hunyuan (models/hunyuan_v1_dense): query and key are normalised head by head once they are rotated.
struct HunyuanSpec : RotaryDecoderSpec {};

BuildFamily build_hunyuan;

namespace family {
extern const Family kHunyuanV1Dense;
}  // namespace family

}  // namespace memcalc
