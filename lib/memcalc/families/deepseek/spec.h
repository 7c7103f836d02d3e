// DeepSeek-V2, V3 and R1, Kimi K2, GLM-4.7-Flash, Youtu-LLM: transformers models/deepseek_v2, models/deepseek_v3,
// models/glm4_moe_lite, models/youtu.
#pragma once

#include <cstdint>

#include "memcalc/spec/family.h"
#include "memcalc/spec/shared_experts_spec.h"

namespace memcalc {

/// What DeepSeek-V2 and V3 share. head_dim is qk_rope_head_dim, as in their configurations.
struct DeepseekSpec : SharedExpertsSpec {
  LatentAttentionSpec latent;

  /// The compressed state and the key's rotary part.
  [[nodiscard]] std::int64_t cached_numbers() const { return latent.kv_lora_rank + latent.qk_rope_head_dim; }
};

/// DeepSeek-V2 (models/deepseek_v2): softmax router, rotary positions as complex numbers.
struct DeepseekV2Spec : DeepseekSpec {
  bool mlp_bias = false;
};

/// DeepSeek-V3 and R1 (models/deepseek_v3): sigmoid router with a correction bias.
struct DeepseekV3Spec : DeepseekSpec {
  bool norm_topk_prob = true;
  bool rope_interleave = true;
  bool float32_correction = false;  // the router's correction bias is float32 whatever the weights are (GLM-4.7-Flash)
};

BuildFamily build_deepseek_v2;
BuildFamily build_deepseek_v3;
BuildFamily build_glm4_moe_lite;
BuildFamily build_youtu;
void deepseek_v2_to_megatron(const Architecture& architecture, MegatronConfig& config);
void deepseek_v3_to_megatron(const Architecture& architecture, MegatronConfig& config);

namespace family {
extern const Family kDeepseekV2, kDeepseekV3, kGlm4MoeLite, kKimiK2, kYoutu;
}  // namespace family

}  // namespace memcalc
