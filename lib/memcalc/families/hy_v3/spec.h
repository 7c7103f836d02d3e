// Hunyuan 3 (Hy3): transformers models/hy_v3.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Hunyuan 3 (models/hy_v3): a sigmoid router in float32, an MLP that every token takes beside the experts.
struct HyV3Spec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::int64_t num_shared_experts = 0;
  bool enable_moe_fp32_combine = true;
  std::vector<bool> dense_layers;  // one for each layer
};

BuildFamily build_hy_v3;

namespace family {
extern const Family kHyV3;
}  // namespace family

}  // namespace memcalc
