// Falcon: transformers models/falcon.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/spec/family.h"

namespace memcalc {

/// Which norms a layer of Falcon has.
enum class FalconNorms : std::uint8_t {
  kSequential,  // post_attention_layernorm, input_layernorm: attention, then the MLP
  kShared,      // input_layernorm in front of attention and MLP, which run beside each other
  kParallel,    // ln_attn and ln_mlp, one for each
};

/// Falcon (models/falcon): 7B has one key and value head, 40B and 180B groups of them ("new decoder architecture"), the
/// RefinedWeb models ALiBi in the place of rotary positions.
struct FalconSpec {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_kv_heads = 0;  // of the new decoder architecture
  std::int64_t ffn_hidden_size = 0;
  std::int64_t max_position_embeddings = 0;
  std::int64_t num_labels = 2;
  std::string activation;
  FalconNorms norms = FalconNorms::kShared;
  double hidden_dropout = 0;
  double attention_dropout = 0;
  bool alibi = false;
  bool new_decoder_architecture = false;
  bool multi_query = true;
  bool bias = false;
  bool tie_word_embeddings = true;

  [[nodiscard]] std::int64_t head_dim() const { return hidden_size / num_attention_heads; }
  /// Key and value heads that are kept: the new decoder architecture repeats them before.
  [[nodiscard]] std::int64_t kept_heads() const {
    return new_decoder_architecture || !multi_query ? num_attention_heads : 1;
  }
  [[nodiscard]] std::int64_t cached_numbers() const { return 2 * kept_heads() * head_dim(); }
};

BuildFamily build_falcon;

namespace family {
extern const Family kFalcon;
}  // namespace family

}  // namespace memcalc
