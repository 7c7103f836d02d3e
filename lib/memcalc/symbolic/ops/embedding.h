// Table look-up and its dense backward.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// F.embedding: weight [rows, width], int64 indices of any shape.
[[nodiscard]] Tensor embedding(const Tensor& weight, Arg indices);

}  // namespace memcalc
