// LFM2 with and without experts: transformers models/lfm2, models/lfm2_moe.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// LFM2 (models/lfm2): short convolutions between gates in most layers, attention in the others.
struct Lfm2Spec : RotaryDecoderSpec {
  std::vector<bool> linear_layers;  // one for each layer: a short convolution
  std::int64_t conv_kernel = 0;     // conv_L_cache
  bool conv_bias = false;
  std::vector<bool> dense_layers;  // one for each layer: an MLP
};

/// With experts behind the first layers (models/lfm2_moe).
struct Lfm2MoeSpec : Lfm2Spec {
  ExpertsSpec experts;
  bool use_expert_bias = true;
  bool norm_topk_prob = true;
};

BuildFamily build_lfm2;

namespace family {
extern const Family kLfm2, kLfm2Moe;
}  // namespace family

}  // namespace memcalc
