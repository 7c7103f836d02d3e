// GLM-4.5, 4.5-Air and 4.6: transformers models/glm4_moe.
#pragma once

#include <cstdint>

#include "memcalc/spec/family.h"
#include "memcalc/spec/shared_experts_spec.h"

namespace memcalc {

/// GLM-4.5 (models/glm4_moe): DeepSeek-V3's experts, heads of which a part is rotated.
struct Glm4MoeSpec : SharedExpertsSpec {
  std::int64_t rotary_dim = 0;
  bool norm_topk_prob = true;
  bool use_qk_norm = false;
};

BuildFamily build_glm4_moe;

namespace family {
extern const Family kGlm4Moe;
}  // namespace family

}  // namespace memcalc
