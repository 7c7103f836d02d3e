// Stacks of matrices as cuSOLVER and MAGMA factorise them, and what each factorisation leaves beside its result.
#pragma once

#include <cstdint>

#include "memcalc/symbolic/ops/recorded_call.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

struct Matrices {
  std::int64_t count = 1, rows = 0, columns = 0;
};

[[nodiscard]] Matrices matrices_of(const Tensor& x);
/// Refuses what is no matrix of float32 or float64; also what is not square.
void check_matrices(const RecordedCall& call, const Tensor& x, bool square = true);

/// The transpose of the last two dimensions.
[[nodiscard]] Tensor transposed(const Tensor& x);
/// A copy of a stack's size and type with columns after each other.
[[nodiscard]] Tensor column_major(const Tensor& like, const Shape& shape, const Operator& op);
/// Of each matrix one element, or `elements` of them.
[[nodiscard]] Tensor empty_per_matrix(const Tensor& like, DType dtype, const Operator& op);
[[nodiscard]] Tensor empty_per_matrix(const Tensor& like, DType dtype, std::int64_t elements, const Operator& op);
/// A workspace for each matrix in turn; one for all: once.
void use_workspace(Tape& tape, std::int64_t bytes, const Operator& op, std::int64_t times = 1);
/// Arrays of pointers to the matrices of a stack, `arrays` of them.
void use_pointer_arrays(Tape& tape, std::int64_t count, int arrays, const Operator& op);
/// LinearAlgebraUtils.h, _linalg_check_errors: whether any factorisation failed.
void check_errors(const Tensor& infos);

}  // namespace memcalc
