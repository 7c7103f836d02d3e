// dots.llm1: transformers models/dots1.
#pragma once

#include <vector>

#include "memcalc/spec/family.h"
#include "memcalc/spec/shared_experts_spec.h"

namespace memcalc {

/// dots.llm1 (models/dots1): Qwen3's attention and DeepSeek-V3's mixture.
struct Dots1Spec : SharedExpertsSpec {
  bool norm_topk_prob = false;
  std::vector<bool> sliding_layers;  // empty: none slides
};

BuildFamily build_dots1;

namespace family {
extern const Family kDots1;
}  // namespace family

}  // namespace memcalc
