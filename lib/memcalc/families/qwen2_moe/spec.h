// Qwen1.5-MoE and Qwen2-MoE: transformers models/qwen2_moe.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Qwen2-MoE (models/qwen2_moe): Qwen2 with experts in the layers that are not dense, and a gated MLP beside them that
/// every token takes.
struct Qwen2MoeSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::int64_t shared_expert_intermediate_size = 0;
  bool qkv_bias = true;
  bool norm_topk_prob = false;
  std::vector<bool> dense_layers;    // one for each layer
  std::vector<bool> sliding_layers;  // empty: none
};

BuildFamily build_qwen2_moe;

namespace family {
extern const Family kQwen2Moe;
}  // namespace family

}  // namespace memcalc
