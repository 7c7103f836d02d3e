// What layers with linear attention keep of a sequence, and the mask that they take: transformers' cache_utils.py,
// LinearAttentionLayer, and masking_utils.py.
// MIRRORS(transformers, "cache_utils.py", "5.17.0")
// MIRRORS(transformers, "masking_utils.py", "5.17.0")
#pragma once

#include <cstdint>

#include "memcalc/models/kv_cache.h"
#include "memcalc/models/model.h"
#include "memcalc/spec/built_rules.h"

namespace memcalc {

namespace rules {
extern const BuiltRule kLinearStatesRead, kLinearLayersCompiled;  // built_rules.cc
}  // namespace rules

/// The states of one layer while it runs; the cache gets them at its end, conv_state first.
struct LinearStates {
  Tensor conv_state;       // [B, channels, kernel]
  Tensor recurrent_state;  // undefined: the layer has none

  /// update_conv_state at a layer's first call: what the convolution reads of conv_states [B, channels, tokens], padded
  /// to `kernel` columns where there are fewer.
  [[nodiscard]] Tensor update_conv_state(const Tensor& conv_states, std::int64_t kernel);
  /// update_recurrent_state
  void update_recurrent_state(const Tensor& recurrent_states);
  /// The next layer's place of the cache. Throws Error of kLinearStatesRead where it is taken: a second forward pass.
  void keep(KeyValueCache& cache);
};

/// create_recurrent_attention_mask: the batch's own mask [B, tokens] where sequences are padded, else undefined.
[[nodiscard]] Tensor create_recurrent_mask(const Batch& batch);

}  // namespace memcalc
