// Gemma 3n's text model: transformers models/gemma3n.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Gemma 3n (models/gemma3n), its text model: several streams of hidden states of which a layer computes one and
/// corrects the others (AltUp), a low-rank residual beside the attention (LAuReL), an embedding for each layer, first
/// layers whose MLPs cut off what is below a quantile, last layers without keys and values of their own.
struct Gemma3nSpec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;
  std::vector<std::int64_t> intermediate_sizes;  // of each layer
  std::vector<bool> sparse_layers;               // activation_sparsity_pattern above 0
  bool final_softcap = true;
  std::int64_t kv_shared_layers = 0;      // num_kv_shared_layers: the last ones, which take an earlier layer's
  std::int64_t per_layer_input = 0;       // hidden_size_per_layer_input
  std::int64_t per_layer_vocabulary = 0;  // vocab_size_per_layer_input
  std::int64_t laurel_rank = 0;
  std::int64_t altup_num_inputs = 0;
  bool altup_clips = true;          // altup_coef_clip is a number
  bool altup_correct_scale = true;  // a learned scale of what the layer's embedding gates

  [[nodiscard]] bool shares_keys(std::int64_t layer) const {
    return kv_shared_layers > 0 && kv_shared_layers < num_hidden_layers &&
           layer >= num_hidden_layers - kv_shared_layers;
  }
};

BuildFamily build_gemma3n;

namespace family {
extern const Family kGemma3n, kGemma3nText;
}  // namespace family

}  // namespace memcalc
