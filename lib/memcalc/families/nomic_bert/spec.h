// Nomic BERT: transformers models/nomic_bert.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// Nomic BERT (models/nomic_bert): post-norm encoder with rotary positions and gated MLPs.
struct NomicBertSpec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t type_vocab_size = 0;
  std::int64_t num_labels = 2;
  std::string hidden_act;
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  std::optional<double> classifier_dropout;  // absent: hidden_dropout_prob
  bool tie_word_embeddings = true;
};

BuildFamily build_nomic_bert;

namespace family {
extern const Family kNomicBert;
}  // namespace family

}  // namespace memcalc
