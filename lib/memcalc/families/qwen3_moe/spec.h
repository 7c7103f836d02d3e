// Qwen3-MoE: transformers models/qwen3_moe.
#pragma once

#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

struct DecoderPlan;

/// Qwen3-MoE (models/qwen3_moe): Qwen3 with experts in the layers that are not dense.
struct Qwen3MoeSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
  bool norm_topk_prob = false;
  std::vector<bool> dense_layers;  // one for each layer
};

BuildFamily build_qwen3_moe;
/// Of the text model of qwen3_vl_moe.
[[nodiscard]] DecoderPlan qwen3_moe_plan(const Architecture& text, const RunSpec& run);
void qwen3_moe_to_megatron(const Architecture& architecture, MegatronConfig& config);

namespace family {
extern const Family kQwen3Moe;
}  // namespace family

}  // namespace memcalc
