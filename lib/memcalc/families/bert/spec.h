// BERT and what is written like it: transformers models/bert, models/roberta, models/xlm_roberta, models/camembert,
// models/electra.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// BERT, RoBERTa, XLM-RoBERTa, CamemBERT and ELECTRA: post-norm encoder, learned positions.
struct BertSpec {
  std::int64_t vocab_size = 0;
  std::int64_t embedding_size = 0;  // ELECTRA: projected to hidden_size where it differs; 0: hidden_size
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t type_vocab_size = 0;
  std::int64_t num_labels = 2;
  std::string hidden_act;  // "gelu", "gelu_new", "relu", …
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  std::optional<double> classifier_dropout;  // absent: hidden_dropout_prob
  bool tie_word_embeddings = true;
  std::int64_t first_position = 0;  // RoBERTa: pad_token_id + 1; that many rows of the positions are never reached
  bool is_roberta = false;  // positions start after the padding id; the classification head has its own dense layer
  bool is_electra = false;  // the classification head is like RoBERTa's, with GELU
  bool head_comes_first = false;  // XLM-RoBERTa, CamemBERT: a head is made before its encoder

  // RoBERTa's positions start after the padding id (transformers create_position_ids_from_input_ids).
  [[nodiscard]] std::int64_t position_limit() const { return max_position_embeddings - first_position; }
};

BuildFamily build_bert;
void bert_to_megatron(const Architecture& architecture, MegatronConfig& config);

namespace family {
extern const Family kBert, kCamembert, kElectra, kRoberta, kXlmRoberta;
}  // namespace family

}  // namespace memcalc
