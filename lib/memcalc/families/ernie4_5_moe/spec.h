// ERNIE 4.5 with experts: transformers models/ernie4_5_moe.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// ERNIE 4.5 MoE (models/ernie4_5_moe): a router in float32, interleaved rotary positions in float32.
struct Ernie45MoeSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::int64_t moe_num_shared_experts = 0;
  bool use_bias = false;
  std::vector<bool> dense_layers;  // one for each layer
};

BuildFamily build_ernie4_5_moe;

namespace family {
extern const Family kErnie45Moe;
}  // namespace family

}  // namespace memcalc
