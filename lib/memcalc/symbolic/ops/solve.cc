// MIRRORS(torch, "BatchLinearAlgebra.cpp", "2.11.0")
// MIRRORS(torch, "FunctionsManual.cpp", "2.11.0")
// MIRRORS(torch, "cuda/linalg/BatchLinearAlgebraLib.cpp", "2.11.0")
#include "memcalc/symbolic/ops/solve.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// Columns after each other, as cuBLAS writes the result.
Shape column_strides(const Shape& shape) {
  Shape strides = contiguous_strides(shape);
  strides[-1] = shape[-2];
  strides[-2] = 1;
  return strides;
}

/// BatchLinearAlgebra.cpp, linalg_solve_triangular_out, and cuda/linalg/BatchLinearAlgebraLib.cpp: b is copied to the
/// result; of a stack cuBLAS wants an array of pointers to each side's matrices.
Tensor solved(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  const std::int64_t n = a.size(-1), systems = b.elements() / (b.size(-1) * b.size(-2));
  Tensor result = tape.empty_strided(b.shape(), column_strides(b.shape()), b.dtype(), aten::kLinalgSolveTriangular);
  if (systems > 1) {
    Tensor matrices = tape.empty({systems}, DType::kInt64, aten::kLinalgSolveTriangular);
    Tensor results = tape.empty({systems}, DType::kInt64, aten::kLinalgSolveTriangular);
    tape.memory.use_cublas(false);
    drop(results, matrices);
  } else {
    tape.memory.use_cublas(false);
  }
  tape.kernels.add(aten::kLinalgSolveTriangular, OperatorClass::kElementwise, b.dtype(),
                   static_cast<double>(b.elements() * n), static_cast<double>(a.bytes() + 2 * b.bytes()));
  return result;
}

/// FunctionsManual.cpp, linalg_solve_triangular_backward: the transposed system for b; for a minus the product of that
/// and the transposed result, of which one triangle is kept.
void solve_backward(BackwardCall& call) {  // saved: a, result
  const Tensor& a = call.saved(0);
  Tensor of_b = solved(transpose(a, a.rank() - 2, a.rank() - 1), call.gradient());
  if (call.needs(0)) {
    const Tensor& result = call.saved(1);
    Tensor product = matmul(of_b, transpose(result, result.rank() - 2, result.rank() - 1));
    Tensor negative = pointwise(aten::kNeg, {&product}, 1);
    product.reset();
    Tensor triangle = call.tape.empty(negative.shape(), negative.dtype(), aten::kTril);
    call.tape.kernels.add(aten::kTril, OperatorClass::kMovement, triangle.dtype(), 0,
                          2.0 * static_cast<double>(triangle.bytes()));
    negative.reset();
    call.set(0, std::move(triangle));
  }
  call.set(1, std::move(of_b));
}

}  // namespace

Tensor solve_triangular(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  const Tensor* inputs[] = {&a, &b};
  Node* node = tape.autograd.record(aten::kLinalgSolveTriangular, solve_backward, inputs, 2);
  if (node != nullptr) tape.autograd.save(*node, a);
  Tensor result = solved(a, b);
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, result);
  return result;
}

}  // namespace memcalc
