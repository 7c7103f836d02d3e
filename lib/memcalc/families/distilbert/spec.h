// DistilBERT: transformers models/distilbert.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// DistilBERT (models/distilbert): BERT without token types and pooler.
struct DistilBertSpec {
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t n_layers = 0;
  std::int64_t n_heads = 0;
  std::int64_t dim = 0;
  std::int64_t hidden_dim = 0;
  std::int64_t num_labels = 2;
  std::string activation;
  double dropout = 0;
  double attention_dropout = 0;
  double seq_classif_dropout = 0;
  double qa_dropout = 0;
  bool tie_word_embeddings = true;

  [[nodiscard]] std::int64_t position_limit() const { return max_position_embeddings; }
};

BuildFamily build_distilbert;

namespace family {
extern const Family kDistilBert;
}  // namespace family

}  // namespace memcalc
