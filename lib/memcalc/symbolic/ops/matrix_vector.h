// Products of a matrix and a vector.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// x.mv(vector) of a matrix: nothing multiplies matrices in its gradient for x, so that a thread of autograd's takes no
/// workspace of cuBLAS for it (derivatives.yaml: grad.ger(vec)).
[[nodiscard]] Tensor mv(const Tensor& x, const Tensor& vector);

}  // namespace memcalc
