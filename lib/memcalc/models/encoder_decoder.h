// What transformers' encoder-decoder models share (T5, BART, Whisper).
#pragma once

#include <vector>

#include "memcalc/models/attention.h"

namespace memcalc {

/// EncoderDecoderCache: the keys and values of every decoder layer, of its own tokens and of the encoder's.
struct EncoderDecoderCache {
  std::vector<Tensor> self_attention, cross_attention;

  /// Hands both over to the model's output, where they die in this order.
  void move_to(ModelOutput& output);
};

/// shift_tokens_right: the decoder's input ids from the labels.
[[nodiscard]] Tensor shift_right(const Tensor& labels);

/// A batch without a mask: a decoder whose own tokens have no padding mask.
[[nodiscard]] inline const Batch& unmasked() {
  static const Batch batch;
  return batch;
}

/// What tie_weights replaces by `tied`: made, and gone when the model is complete.
[[nodiscard]] Tensor replaced_by(ModuleBuilder& builder, const Tensor& tied);

}  // namespace memcalc
