// Triangular systems.
#pragma once

#include <cstdint>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// torch.linalg.solve_triangular(a, b) for stacks of matrices a [..., n, n] and b [..., n, m] of the same leading
/// dimensions; not `left`: of b [..., m, n] from the right.
[[nodiscard]] Tensor solve_triangular(const Tensor& a, const Tensor& b, bool left = true);

/// Its kernel, without autograd.
[[nodiscard]] Tensor solved_triangle(const Tensor& a, const Tensor& b);
/// The arrays of pointers that cuBLAS's solver of stacks takes, allocated and let go.
void point_at_triangles(Tape& tape, std::int64_t systems, std::int64_t n);

/// Columns after each other, as cuBLAS and cuSOLVER lay out matrices.
[[nodiscard]] Shape column_strides(const Shape& shape);

}  // namespace memcalc
