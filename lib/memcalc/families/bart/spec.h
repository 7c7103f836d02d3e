// BART: transformers models/bart.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// BART (models/bart): encoder-decoder with learned positions, norms behind each layer.
struct BartSpec {
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t d_model = 0;
  std::int64_t encoder_layers = 0;
  std::int64_t encoder_ffn_dim = 0;
  std::int64_t encoder_attention_heads = 0;
  std::int64_t decoder_layers = 0;
  std::int64_t decoder_ffn_dim = 0;
  std::int64_t decoder_attention_heads = 0;
  std::string activation_function;
  double dropout = 0;
  double attention_dropout = 0;
  double activation_dropout = 0;
  bool tie_word_embeddings = true;

  [[nodiscard]] std::int64_t position_limit() const { return max_position_embeddings; }
};

BuildFamily build_bart;

namespace family {

struct BartDefaults {
  std::int64_t vocab_size, d_model, layers, heads, ffn_dim;
  double dropout;
};

/// What BART and Whisper share; the names of the positions differ.
void read_bart(HfReader& config, const BartDefaults& defaults, BartSpec& spec);

extern const Family kBart;

}  // namespace family

}  // namespace memcalc
