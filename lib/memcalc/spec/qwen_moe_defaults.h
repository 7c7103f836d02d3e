// Sizes that Qwen2MoeConfig and Qwen3VLMoeTextConfig of transformers 5.17 both fall back on.
#pragma once

#include <cstdint>

#include "memcalc/spec/decoder_config.h"

namespace memcalc::family {

[[nodiscard]] constexpr DecoderDefaults qwen_moe_defaults(std::int64_t max_position_embeddings) {
  return {.vocab_size = 151936,
          .hidden_size = 2048,
          .intermediate_size = 5632,
          .num_hidden_layers = 24,
          .num_attention_heads = 16,
          .num_key_value_heads = 16,
          .max_position_embeddings = max_position_embeddings};
}

}  // namespace memcalc::family
