// Triangular systems.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// torch.linalg.solve_triangular(a, b) for stacks of matrices a [..., n, n] and b [..., n, m] of the same leading
/// dimensions.
[[nodiscard]] Tensor solve_triangular(const Tensor& a, const Tensor& b);

}  // namespace memcalc
