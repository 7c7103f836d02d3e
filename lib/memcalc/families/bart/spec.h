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
  std::int64_t vocab_size = 50265, d_model = 1024, layers = 12, heads = 16, ffn_dim = 4096;
  double dropout = 0.1, attention_dropout = 0;
  std::string_view activation = "gelu";
  double layerdrop = 0;  // of both stacks
};

/// What BART and those that were made of it share; Whisper names the positions otherwise.
void read_bart(HfReader& config, const BartDefaults& defaults, BartSpec& spec);
/// The same with the positions, as all but Whisper name them.
[[nodiscard]] BartSpec bart_spec(HfReader& config, const BartDefaults& defaults = {});
/// BART's own, whose keys and defaults are mBART's and Pegasus', too.
ReadFamily bart;

extern const Family kBart;

}  // namespace family

}  // namespace memcalc
