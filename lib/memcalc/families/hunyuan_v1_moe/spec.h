// Hunyuan V1 with experts (A13B, Large): transformers models/hunyuan_v1_moe.
#pragma once

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Hunyuan V1 with experts in every layer (models/hunyuan_v1_moe) beside an MLP that every token takes; query and key
/// are normalised behind the rotation.
struct HunyuanMoeSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
};

BuildFamily build_hunyuan_moe;

namespace family {
extern const Family kHunyuanV1Moe;
}  // namespace family

}  // namespace memcalc
