// x.repeat_interleave(times, dim) with a number.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// Each element of a dimension `times` times, one after the other.
[[nodiscard]] Tensor repeat_interleave(const Tensor& x, std::int64_t times, int dim);

}  // namespace memcalc
