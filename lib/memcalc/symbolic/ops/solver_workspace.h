// What cuSOLVER asks for beside a factorisation's matrices, in bytes. Where a function takes a type, cuSOLVER was asked
// for float32 and float64; the others' figures are of float32 matrices.
#pragma once

#include <cstdint>

#include "memcalc/base/dtype.h"

namespace memcalc::cusolver {

/// LU of n by n (Sgetrf, Dgetrf): exact up to 1,024 rows, between sampled sizes beyond.
[[nodiscard]] std::int64_t lu_bytes(std::int64_t n, DType dtype);
/// Cholesky's of n by n (Xpotrf), the same of both types.
[[nodiscard]] std::int64_t cholesky_bytes(std::int64_t n);
/// QR of m by n (Xgeqrf): Householder's vectors; and Q's first k columns made of these (Sorgqr).
[[nodiscard]] std::int64_t householder_bytes(std::int64_t n);
[[nodiscard]] std::int64_t orthogonal_bytes(std::int64_t m, std::int64_t k);
/// Eigenvalues and -vectors of one symmetric matrix by Jacobi's rotations (Ssyevj), by divide and conquer (Xsyevd:
/// between sampled sizes), and of `count` ones of up to 32 rows at once (XsyevBatched).
[[nodiscard]] std::int64_t jacobi_bytes(std::int64_t n);
[[nodiscard]] std::int64_t divide_and_conquer_bytes(std::int64_t n, DType dtype);
[[nodiscard]] std::int64_t stacked_bytes(std::int64_t n, std::int64_t count, DType dtype);
/// Singular values of m by n by Jacobi's rotations (Sgesvdj); of at most 32 by 32 (SgesvdjBatched).
[[nodiscard]] std::int64_t singular_bytes(std::int64_t m, std::int64_t n);
inline constexpr std::int64_t kSmallSingularBytes = 3968;

}  // namespace memcalc::cusolver
