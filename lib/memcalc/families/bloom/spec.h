// BLOOM: transformers models/bloom.
#pragma once

#include <cstdint>

#include "memcalc/spec/family.h"

namespace memcalc {

/// BLOOM and BLOOMZ (models/bloom): ALiBi, a norm behind the embedding, one projection of query, key and value.
struct BloomSpec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t n_layer = 0;
  std::int64_t n_head = 0;
  std::int64_t num_labels = 2;
  double hidden_dropout = 0;
  double attention_dropout = 0;
  bool apply_residual_connection_post_layernorm = false;
  bool tie_word_embeddings = true;

  [[nodiscard]] std::int64_t cached_numbers() const { return 2 * hidden_size; }
};

BuildFamily build_bloom;

namespace family {
extern const Family kBloom;
}  // namespace family

}  // namespace memcalc
