// MIRRORS(torch, "BatchLinearAlgebra.cpp", "2.11.0")
#include "memcalc/symbolic/ops/matrices.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/solve.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

Matrices matrices_of(const Tensor& x) {
  const std::int64_t rows = x.size(-2), columns = x.size(-1);
  return {.count = x.elements() / (rows * columns), .rows = rows, .columns = columns};
}

void check_matrices(const RecordedCall& call, const Tensor& x, bool square) {
  if (x.rank() < 2 || x.elements() == 0) call.refuse("what is no matrix");
  if (x.dtype() != DType::kFloat32 && x.dtype() != DType::kFloat64)
    call.refuse("matrices that are neither float32 nor float64");
  if (square && x.size(-1) != x.size(-2)) call.refuse("what is not square");
}

Tensor transposed(const Tensor& x) { return transpose(x, x.rank() - 2, x.rank() - 1); }

Tensor column_major(const Tensor& like, const Shape& shape, const Operator& op) {
  Tensor result = like.tape().empty_strided(shape, column_strides(shape), like.dtype(), op);
  like.tape().kernels.add(op, OperatorClass::kMovement, like.dtype(), 0, 2.0 * static_cast<double>(result.bytes()));
  return result;
}

Tensor empty_per_matrix(const Tensor& like, DType dtype, const Operator& op) {
  Shape shape = like.shape();
  shape.rank -= 2;
  return like.tape().empty(shape, dtype, op);
}

Tensor empty_per_matrix(const Tensor& like, DType dtype, std::int64_t elements, const Operator& op) {
  Shape shape = like.shape();
  shape.rank -= 1;
  shape[-1] = elements;
  return like.tape().empty(shape, dtype, op);
}

void use_workspace(Tape& tape, std::int64_t bytes, const Operator& op, std::int64_t times) {
  for (std::int64_t i = 0; i < times; ++i) tape.memory.scratch(bytes, op, Category::kWorkspaces);
}

void use_pointer_arrays(Tape& tape, std::int64_t count, int arrays, const Operator& op) {
  const Tensor first = tape.empty({count}, DType::kInt64, op);
  if (arrays > 1) const Tensor second = tape.empty({count}, DType::kInt64, op);
}

void check_errors(const Tensor& infos) {
  Tape& tape = infos.tape();
  Tensor any = tape.empty({1}, DType::kBool, aten::kNe);
  if (infos.elements() == 1) tape.memory.scratch(1, aten::kNe);
}

}  // namespace memcalc
