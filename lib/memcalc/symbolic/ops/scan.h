// Running sums.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// x.cumsum(dim, dtype)
[[nodiscard]] Tensor cumulative_sum(const Tensor& x, int dim, DType dtype);

}  // namespace memcalc
