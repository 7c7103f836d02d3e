// GPT-J: transformers models/gptj.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// GPT-J (models/gptj): attention and MLP side by side, pairs of a part of each head are rotated, eager attention
/// alone.
struct GptjSpec {
  std::int64_t vocab_size = 0;
  std::int64_t n_embd = 0;
  std::int64_t n_layer = 0;
  std::int64_t n_head = 0;
  std::int64_t n_positions = 0;
  std::int64_t n_inner = 0;  // 4 * n_embd where config.json has null
  std::int64_t rotary_dim = 0;
  std::int64_t num_labels = 2;
  std::string activation_function;  // "gelu_new", …
  double resid_pdrop = 0;
  double embd_pdrop = 0;
  double attn_pdrop = 0;
  bool tie_word_embeddings = false;

  [[nodiscard]] std::int64_t position_limit() const { return n_positions; }
  [[nodiscard]] std::int64_t cached_numbers() const { return 2 * n_embd; }
};

BuildFamily build_gptj;

namespace family {
extern const Family kGptj;
}  // namespace family

}  // namespace memcalc
