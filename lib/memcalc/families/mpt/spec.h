// MPT: transformers models/mpt.
#pragma once

#include <cstdint>

#include "memcalc/spec/family.h"

namespace memcalc {

/// MPT (models/mpt): ALiBi over the trained length, no biases, an MLP four times as wide.
struct MptSpec {
  std::int64_t vocab_size = 0;
  std::int64_t d_model = 0;
  std::int64_t n_layers = 0;
  std::int64_t n_heads = 0;
  std::int64_t max_seq_len = 0;
  std::int64_t num_labels = 2;
  double attn_pdrop = 0;  // of the attention weights and behind both halves
  bool clips_qkv = false;
  bool tie_word_embeddings = true;

  [[nodiscard]] std::int64_t position_limit() const { return max_seq_len; }
  [[nodiscard]] std::int64_t cached_numbers() const { return 2 * d_model; }
};

BuildFamily build_mpt;

namespace family {
extern const Family kMpt;
}  // namespace family

}  // namespace memcalc
