// Kimi-Linear: transformers models/kimi_linear.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/families/deepseek/spec.h"

namespace memcalc {

/// Kimi-Linear (models/kimi_linear): DeepSeek-V3's experts; layers of latent attention without positions among layers
/// of a delta rule whose states forget by channel.
struct KimiLinearSpec : DeepseekV3Spec {
  std::int64_t linear_num_heads = 0;
  std::int64_t linear_head_dim = 0;
  std::int64_t linear_conv_kernel_dim = 0;
  std::vector<bool> linear_layers;
  std::vector<bool> dense_layers;
};

BuildFamily build_kimi_linear;

namespace family {
extern const Family kKimiLinear;
}  // namespace family

}  // namespace memcalc
