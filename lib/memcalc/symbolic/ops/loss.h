// Losses.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// F.cross_entropy of logits [rows, classes] against int64 targets [rows]: a scalar.
[[nodiscard]] Tensor cross_entropy(const Tensor& logits, Arg targets);

}  // namespace memcalc
