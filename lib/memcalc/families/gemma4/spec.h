// Gemma 4's text models: transformers models/gemma4, models/gemma4_unified.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// Gemma 4 (models/gemma4, models/gemma4_unified): local layers of head_dim and num_key_value_heads, global ones of
/// sizes of their own; in some sizes experts beside the MLP, in others an embedding for each layer and last layers
/// without keys and values of their own.
struct Gemma4Spec : RotaryDecoderSpec {
  std::vector<bool> sliding_layers;
  bool final_softcap = false;
  std::int64_t global_head_dim = 0;
  std::int64_t global_key_value_heads = 0;
  bool keys_are_values = false;           // attention_k_eq_v: global layers have no v_proj
  std::int64_t kv_shared_layers = 0;      // num_kv_shared_layers: the last ones, which take an earlier layer's
  bool double_wide_mlp = false;           // of these
  std::int64_t per_layer_input = 0;       // hidden_size_per_layer_input; 0: there is none
  std::int64_t per_layer_vocabulary = 0;  // vocab_size_per_layer_input
  ExpertsSpec experts;                    // count 0: none

  [[nodiscard]] bool shares_keys(std::int64_t layer) const {
    return kv_shared_layers > 0 && layer >= num_hidden_layers - kv_shared_layers;
  }
};

BuildFamily build_gemma4;

namespace family {
extern const Family kGemma4, kGemma4Text, kGemma4Unified, kGemma4UnifiedText;
}  // namespace family

}  // namespace memcalc
