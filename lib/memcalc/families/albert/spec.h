// ALBERT: transformers models/albert.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// ALBERT (models/albert): narrow embeddings, and layers that share their parameters within a group.
struct AlbertSpec {
  std::int64_t vocab_size = 0;
  std::int64_t embedding_size = 0;  // projected to hidden_size
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;  // runs of a group, in equal parts
  std::int64_t num_hidden_groups = 0;
  std::int64_t inner_group_num = 0;  // layers of a group
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t type_vocab_size = 0;
  std::int64_t num_labels = 2;
  std::string hidden_act;
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  double classifier_dropout_prob = 0;
  bool tie_word_embeddings = true;

  [[nodiscard]] std::int64_t position_limit() const { return max_position_embeddings; }
};

BuildFamily build_albert;

namespace family {
extern const Family kAlbert;
}  // namespace family

}  // namespace memcalc
