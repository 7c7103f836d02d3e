// dots.llm1: transformers models/dots1.
#pragma once

#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// dots.llm1 (models/dots1): Qwen3's attention and DeepSeek-V3's mixture.
struct Dots1Spec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::int64_t n_shared_experts = 0;
  std::int64_t first_k_dense_replace = 0;  // so many layers have an MLP instead
  std::int64_t n_group = 1;
  std::int64_t topk_group = 1;
  bool norm_topk_prob = false;
  std::vector<bool> sliding_layers;  // empty: none slides
};

BuildFamily build_dots1;

namespace family {
extern const Family kDots1;
}  // namespace family

}  // namespace memcalc
