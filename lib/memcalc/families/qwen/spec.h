// Qwen2, 2.5 and 3: transformers models/qwen2, models/qwen3.
#pragma once

#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

struct DecoderPlan;

/// Qwen2 and 2.5 (models/qwen2): biases on query, key and value only.
struct Qwen2Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;  // empty: none
};

/// Qwen3 (models/qwen3): query and key are normalised head by head.
struct Qwen3Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;  // empty: none
};

BuildFamily build_qwen2;
BuildFamily build_qwen3;
/// It refers to both. A model of images and text builds its text model by it, too.
[[nodiscard]] DecoderPlan qwen2_plan(const Architecture& text, const RunSpec& run);
[[nodiscard]] DecoderPlan qwen3_plan(const Architecture& text, const RunSpec& run);
void qwen2_to_megatron(const Architecture& architecture, MegatronConfig& config);
void qwen3_to_megatron(const Architecture& architecture, MegatronConfig& config);

namespace family {
extern const Family kQwen2, kQwen3;
}  // namespace family

}  // namespace memcalc
