// What families of decoders share: RMS norms, rotary positions, mixtures of experts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace memcalc {

/// What the decoders with rotary positions share, from LLaMA on: RMS norms, grouped key and value heads.
struct RotaryDecoderSpec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t num_labels = 2;
  std::string hidden_act;  // "silu", …
  double attention_dropout = 0;
  bool attention_bias = false;
  bool tie_word_embeddings = false;
  bool yarn_positions = false;                 // rope_type "yarn": frequencies made in more steps
  std::optional<std::int64_t> sliding_window;  // a mask is built where the sequence reaches it

  [[nodiscard]] std::int64_t cached_numbers() const { return 2 * num_key_value_heads * head_dim; }
};

/// Mixtures of experts: each token passes through some of a layer's many MLPs.
struct ExpertsSpec {
  std::int64_t count = 0;              // of each layer
  std::int64_t per_token = 0;          // num_experts_per_tok
  std::int64_t intermediate_size = 0;  // of one expert
};

/// DeepSeek's multi-head latent attention: keys and values from a compressed state, positions on a part of each head.
struct LatentAttentionSpec {
  std::optional<std::int64_t> q_lora_rank;  // absent: queries are not compressed
  std::int64_t kv_lora_rank = 0;
  std::int64_t qk_nope_head_dim = 0;
  std::int64_t qk_rope_head_dim = 0;
  std::int64_t v_head_dim = 0;
};

}  // namespace memcalc
