// Losses.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// F.cross_entropy of logits [rows, classes] against int64 targets [rows]: a scalar.
[[nodiscard]] Tensor cross_entropy(const Tensor& logits, Arg targets);

/// F.ctc_loss of log_probs [frames, batch, symbols], without reduction: [batch]. All labels are `label_length` long.
[[nodiscard]] Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, std::int64_t label_length);

}  // namespace memcalc
