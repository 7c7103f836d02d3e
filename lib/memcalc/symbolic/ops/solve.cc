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

Shape column_strides(const Shape& shape) {
  Shape strides = contiguous_strides(shape);
  strides[-1] = shape[-2];
  strides[-2] = 1;
  return strides;
}

/// cuda/linalg/BatchLinearAlgebra.cpp, triangular_solve_kernel: few large systems one by one, others as a stack, of
/// which cuBLAS wants an array of pointers to each side's matrices; large ones of many go to MAGMA.
void point_at_triangles(Tape& tape, std::int64_t systems, std::int64_t n) {
  tape.memory.use_cublas(false);
  if ((systems <= 8 && n >= 64) || n > 512) return;
  Tensor matrices = tape.empty({systems}, DType::kInt64, aten::kLinalgSolveTriangular);
  Tensor results = tape.empty({systems}, DType::kInt64, aten::kLinalgSolveTriangular);
  drop(results, matrices);
}

/// BatchLinearAlgebra.cpp, linalg_solve_triangular_out, and cuda/linalg/BatchLinearAlgebraLib.cpp: b is copied to the
/// result.
Tensor solved_triangle(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  const std::int64_t n = a.size(-1), systems = b.elements() / (b.size(-1) * b.size(-2));
  Tensor result = tape.empty_strided(b.shape(), column_strides(b.shape()), b.dtype(), aten::kLinalgSolveTriangular);
  point_at_triangles(tape, systems, n);
  tape.kernels.add(aten::kLinalgSolveTriangular, OperatorClass::kElementwise, b.dtype(),
                   static_cast<double>(b.elements() * n), static_cast<double>(a.bytes() + 2 * b.bytes()));
  return result;
}

namespace {

/// FunctionsManual.cpp, linalg_solve_triangular_backward: the transposed system for b; for a minus the product of that
/// and the transposed result, of which one triangle is kept.
template <bool left>
void solve_backward(BackwardCall& call) {  // saved: a, result
  const Tensor& a = call.saved(0);
  Tensor of_b = solved_triangle(transpose(a, a.rank() - 2, a.rank() - 1), call.gradient());
  if (call.needs(0)) {
    const Tensor& result = call.saved(1);
    const Tensor turned = transpose(result, result.rank() - 2, result.rank() - 1);
    Tensor product = left ? matmul(of_b, turned) : matmul(turned, of_b);
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

Tensor solve_triangular(const Tensor& a, const Tensor& b, bool left) {
  Tape& tape = a.tape();
  const Tensor* inputs[] = {&a, &b};
  const auto backward = left ? solve_backward<true> : solve_backward<false>;
  Node* node = tape.autograd.record(aten::kLinalgSolveTriangular, backward, inputs, 2);
  if (node != nullptr) tape.autograd.save(*node, a);
  Tensor result = solved_triangle(a, b);
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, result);
  return result;
}

}  // namespace memcalc
