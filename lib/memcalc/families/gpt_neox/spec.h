// GPT-NeoX and Pythia: transformers models/gpt_neox.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// GPT-NeoX and Pythia (models/gpt_neox): fused QKV, rotary positions on a part of each head.
struct GptNeoxSpec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t rotary_dim = 0;
  std::int64_t num_labels = 2;
  std::string hidden_act;
  double attention_dropout = 0;
  double hidden_dropout = 0;
  bool attention_bias = true;
  bool use_parallel_residual = true;
  bool tie_word_embeddings = false;

  [[nodiscard]] std::int64_t cached_numbers() const { return 2 * hidden_size; }
};

BuildFamily build_gpt_neox;

namespace family {
extern const Family kGptNeox;
}  // namespace family

}  // namespace memcalc
