// ModernBERT: transformers models/modernbert.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/spec/family.h"

namespace memcalc {

/// ModernBERT (models/modernbert): pre-norm encoder with rotary positions and gated MLPs, whose layers see a window of
/// neighbours or all tokens.
struct ModernBertSpec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t local_attention = 0;  // tokens that a sliding layer sees, on both sides together
  std::int64_t num_labels = 2;
  std::string hidden_activation;
  std::string classifier_activation;
  std::vector<bool> sliding_layers;
  double attention_dropout = 0;
  double embedding_dropout = 0;
  double mlp_dropout = 0;
  double classifier_dropout = 0;
  bool norm_bias = false;
  bool attention_bias = false;
  bool mlp_bias = false;
  bool classifier_bias = false;
  bool decoder_bias = true;
  bool pools_by_mean = false;  // classifier_pooling "mean"; else the first token stands for its sequence
  bool tie_word_embeddings = true;
};

BuildFamily build_modernbert;

namespace family {
extern const Family kModernBert;
}  // namespace family

}  // namespace memcalc
