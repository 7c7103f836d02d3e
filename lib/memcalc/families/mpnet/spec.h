// MPNet: transformers models/mpnet.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// MPNet (models/mpnet): RoBERTa with a position bias that all layers share, and eager attention alone.
struct MpnetSpec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t relative_attention_num_buckets = 0;
  std::int64_t num_labels = 2;
  std::string hidden_act;
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  bool tie_word_embeddings = true;

  // Positions start after the padding id, 1, which the class writes out.
  [[nodiscard]] std::int64_t position_limit() const { return max_position_embeddings - 2; }
};

BuildFamily build_mpnet;

namespace family {
extern const Family kMpnet;
}  // namespace family

}  // namespace memcalc
