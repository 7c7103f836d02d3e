// DeepSeek-V3.2, GLM-5: transformers models/deepseek_v32, models/glm_moe_dsa.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/families/deepseek/spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// DeepSeek-V3.2 (models/deepseek_v32) and GLM-5 (models/glm_moe_dsa): DeepSeek-V3 whose queries attend to the tokens
/// alone that an indexer chooses.
struct DeepseekV32Spec : DeepseekV3Spec {
  std::int64_t index_n_heads = 0;
  std::int64_t index_head_dim = 0;
  std::int64_t index_topk = 0;        // tokens of each query
  bool index_interleaves = false;     // the indexer rotates neighbours (GLM-5)
  std::vector<bool> shared_indexers;  // GLM-5.2: the layer takes the choice of the one before; empty: DeepSeek-V3.2

  /// Keys and values of every head, and the indexer's key.
  [[nodiscard]] std::int64_t cached_numbers() const {
    const std::int64_t of_head = latent.qk_nope_head_dim + latent.qk_rope_head_dim + latent.v_head_dim;
    return num_attention_heads * of_head + index_head_dim;
  }
};

BuildFamily build_deepseek_v32;

namespace family {
extern const Family kDeepseekV32, kGlmMoeDsa;
}  // namespace family

}  // namespace memcalc
