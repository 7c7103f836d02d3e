// MiMo-V2-Flash: transformers models/mimo_v2_flash.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// MiMo-V2-Flash (models/mimo_v2_flash): sliding layers have sinks and twice the key and value heads of the full ones;
/// a head's values are narrower than its keys; experts behind DeepSeek-V3's router, without shared ones.
struct MiMoV2FlashSpec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::int64_t v_head_dim = 0;
  std::int64_t rotary_dim = 0;
  std::int64_t n_group = 0, topk_group = 0;
  bool norm_topk_prob = true;
  std::vector<bool> sliding_layers, dense_layers;  // one for each layer

  /// Of a full layer; a sliding one keeps twice as many of a token in its window.
  [[nodiscard]] std::int64_t cached_numbers() const { return num_key_value_heads * (head_dim + v_head_dim); }
};

BuildFamily build_mimo_v2_flash;

namespace family {
extern const Family kMiMoV2Flash;
}  // namespace family

}  // namespace memcalc
