// OPT: transformers models/opt.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// OPT (models/opt): learned positions with two extra rows; the 350m model norms after and projects its embeddings.
struct OptSpec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t ffn_dim = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t word_embed_proj_dim = 0;
  std::int64_t num_labels = 2;
  std::string activation_function;
  double dropout = 0;
  double attention_dropout = 0;
  bool do_layer_norm_before = true;
  bool remove_final_layer_norm = false;
  bool enable_bias = true;
  bool tie_word_embeddings = true;

  [[nodiscard]] std::int64_t position_limit() const { return max_position_embeddings; }
  [[nodiscard]] std::int64_t cached_numbers() const { return 2 * hidden_size; }
};

BuildFamily build_opt;

namespace family {
extern const Family kOpt;
}  // namespace family

}  // namespace memcalc
