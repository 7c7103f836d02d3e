// Qwen3-Next and Qwen3.5's text models: transformers models/qwen3_next, models/qwen3_5, models/qwen3_5_moe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"
#include "memcalc/spec/linear_attention_spec.h"

namespace memcalc {

/// Qwen3.5 without experts (models/qwen3_5): gated DeltaNet in most layers, gated attention in the others.
struct Qwen35Spec : RotaryDecoderSpec {
  GatedDeltaNetSpec delta;
  std::vector<bool> linear_layers;  // one for each layer: gated DeltaNet
  std::int64_t rotary_dim = 0;
  std::optional<std::array<std::int64_t, 3>> mrope_section;  // Qwen3.5: positions of time, height and width
  std::vector<bool> dense_layers;                            // one for each layer
};

/// Qwen3-Next (models/qwen3_next), Qwen3.5 with experts (models/qwen3_5_moe): beside them an MLP that every token
/// takes.
struct Qwen3NextSpec : Qwen35Spec {
  ExpertsSpec experts;
  std::int64_t shared_expert_intermediate_size = 0;
  bool norm_topk_prob = true;
};

BuildFamily build_qwen3_next;

namespace family {
extern const Family kQwen3Next, kQwen35, kQwen35Moe, kQwen35MoeText, kQwen35Text;
}  // namespace family

}  // namespace memcalc
