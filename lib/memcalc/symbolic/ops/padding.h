// F.pad with what lies beside it: "reflect", "replicate".
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// `x` filled up to `shape`; its input is kept.
[[nodiscard]] Tensor padded_by_mode(const Tensor& x, const Shape& shape);

}  // namespace memcalc
