// DeBERTa v2 and v3: transformers models/deberta_v2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// DeBERTa v2, whose classes the checkpoints of v3 have, too (models/deberta_v2): scores of contents and, apart from
/// them, of relative positions.
struct DebertaV2Spec {
  std::int64_t vocab_size = 0;
  std::int64_t embedding_size = 0;  // projected to hidden_size where it differs
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t type_vocab_size = 0;  // 0: no token types
  std::int64_t position_span = 0;    // relative positions to each side; 0: no relative attention
  std::int64_t num_labels = 2;
  std::string hidden_act;
  std::string pooler_hidden_act;
  double hidden_dropout_prob = 0;
  double attention_probs_dropout_prob = 0;
  double pooler_dropout = 0;
  std::optional<double> cls_dropout;  // absent: hidden_dropout_prob
  bool position_biased_input = true;  // absolute positions are added to the embeddings
  bool buckets_positions = false;     // far positions share a bucket (make_log_bucket_position)
  bool norms_positions = false;       // norm_rel_ebd "layer_norm"
  bool shares_keys = false;           // share_att_key: positions are projected by the contents' layers
  bool content_to_position = false;   // "c2p" of pos_att_type
  bool position_to_content = false;   // "p2c"
  bool tie_word_embeddings = true;

  // Without absolute positions no table ends; the buffer of position ids is cut all the same, and nobody reads it.
  [[nodiscard]] std::optional<std::int64_t> position_limit() const {
    return position_biased_input ? std::optional(max_position_embeddings) : std::nullopt;
  }
};

BuildFamily build_deberta_v2;

namespace family {
extern const Family kDebertaV2;
}  // namespace family

}  // namespace memcalc
