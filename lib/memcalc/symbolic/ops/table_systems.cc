// Rows of the operator table over the LU factorisation: systems of equations, inverses, determinants. Sources:
// aten/src/ATen/native/BatchLinearAlgebra.cpp, cuda/linalg/BatchLinearAlgebra.cpp,
// torch/csrc/autograd/FunctionsManual.cpp of torch 2.11; the streams of 2,718 factorisations on an H200
// (tests/measured/linalg_streams_h200.jsonl.gz).
// MIRRORS(torch, "BatchLinearAlgebra.cpp", "2.11.0")
// MIRRORS(torch, "torch/csrc/autograd/FunctionsManual.cpp", "2.11.0")
#include <utility>

#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/matrices.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/solve.h"
#include "memcalc/symbolic/ops/solver_workspace.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {
namespace {

/// L and U in one matrix, and which row each pivot was in.
struct Lu {
  Tensor factors, pivots;
};

Lu empty_lu(const Tensor& a) {
  Tensor factors = column_major(a, a.shape(), aten::kFactoriseLu);
  Tensor pivots = empty_per_matrix(a, DType::kInt32, matrices_of(a).rows, aten::kFactoriseLu);
  return {std::move(factors), std::move(pivots)};
}

/// cuda/linalg/BatchLinearAlgebra.cpp, lu_factor: one matrix by cuSOLVER, small stacks by cuBLAS, others by MAGMA.
void factorise(const Tensor& a) {
  const Matrices of = matrices_of(a);
  Tape& tape = a.tape();
  if (of.count == 1) return use_workspace(tape, cusolver::lu_bytes(of.rows, a.dtype()), aten::kFactoriseLu);
  if (of.rows > 16 && (of.rows > 128 || of.count > 8)) return;
  tape.memory.use_cublas(false);
  use_pointer_arrays(tape, of.count, 1, aten::kFactoriseLu);
}

/// A permutation of rows from pivots: the numbers of rows, once for each matrix.
Tensor permutation(const Tensor& a) {
  const Tensor one = filled(a.tape(), {a.size(-1)}, DType::kInt64, aten::kArange);
  if (matrices_of(a).count == 1) return one;
  return empty_per_matrix(a, DType::kInt64, a.size(-1), aten::kArange);
}

/// cuda/linalg/BatchLinearAlgebra.cpp, lu_solve_kernel, in place of `b`: by cuSOLVER one by one, by cuBLAS as a stack,
/// or as two triangular systems. `adjoint`: of the transposed factors; `left`: not from the right, where b is turned.
void solve_by_lu(const Tensor& a, const Tensor& b, bool adjoint, bool left = true) {
  Tape& tape = a.tape();
  const std::int64_t n = a.size(-1), count = matrices_of(a).count, columns = b.size(left ? -1 : -2);
  enum class Way { kLooped, kStacked, kTriangles } way = Way::kTriangles;
  if (n == columns) {
    if (columns <= 16) way = Way::kStacked;
  } else if (n <= 8) {
    way = Way::kStacked;
  } else if (n <= 64) {
    const bool few = n <= 32 || columns <= 64 || adjoint;
    way = count <= 2 && few ? Way::kLooped : columns <= 8 ? Way::kStacked : Way::kTriangles;
  } else if (n <= 128 && columns <= 2) {
    way = count <= 2 ? Way::kLooped : Way::kStacked;
  }
  if (way == Way::kLooped) return use_workspace(tape, size_of(DType::kInt32), aten::kSolve);
  if (way == Way::kStacked) {
    tape.memory.use_cublas(false);
    return use_pointer_arrays(tape, count, 2, aten::kSolve);
  }
  const Tensor order = permutation(a);
  if (adjoint) {
    point_at_triangles(tape, count, n);
    point_at_triangles(tape, count, n);
    const Tensor copy = moved_like(b, aten::kClone);
    return;
  }
  const Tensor numbers = filled(tape, {n}, DType::kInt64, aten::kArange);
  const Tensor inverse = empty_per_matrix(a, DType::kInt64, n, aten::kArange);
  const Tensor permuted = moved_like(b, aten::kClone);
  point_at_triangles(tape, count, n);
  point_at_triangles(tape, count, n);
}

Tensor negated(const Tensor& x) { return pointwise(aten::kNeg, {&x}, 1); }

// --- systems --------------------------------------------------------------------------------------------------------

struct SolvePayload {
  bool left = true;
};

/// FunctionsManual.cpp, linalg_solve_backward: the transposed system for b, minus its product with the result for a.
void solve_backward(BackwardCall& call) {  // saved: a, LU, pivots, result
  const NoGrad no_grad(call.tape.modes);
  const Tensor &a = call.saved(0), &result = call.saved(3);
  const bool left = call.payload<SolvePayload>().left;
  Tensor of_b = column_major(a, result.shape(), aten::kSolve);
  solve_by_lu(a, of_b, true, left);
  if (call.needs(0)) {
    const Tensor product = left ? matmul(of_b, transposed(result)) : matmul(transposed(result), of_b);
    call.set(0, negated(product));
  }
  call.set(1, std::move(of_b));
}

void solve_row(RecordedCall& call) {  // A B left
  const Tensor &a = call.tensor(0), &b = call.tensor(1);
  check_matrices(call, a);
  const bool left = call.boolean_or(2, true);
  bool alike = a.rank() == b.rank();
  for (int i = 0; alike && i < a.rank() - 2; ++i) alike = a.size(i) == b.size(i);
  if (!alike) call.refuse("a vector, or stacks that are broadcast");
  Node* node = record(aten::kSolve, solve_backward, {&a, &b}, {&a});
  Tensor result = column_major(a, b.shape(), aten::kSolve);
  Lu lu = empty_lu(a);
  {
    const Tensor infos = empty_per_matrix(a, DType::kInt32, aten::kSolve);
    factorise(a);
    solve_by_lu(a, result, false, left);
    if (node == nullptr) drop(lu.factors, lu.pivots);
    check_errors(infos);
  }
  if (node != nullptr) {
    node->payload.set(SolvePayload{left});
    call.tape.autograd.save(*node, lu.factors);
    call.tape.autograd.save(*node, lu.pivots);
  }
  call.returns(finish(node, std::move(result), true));
}

/// FunctionsManual.cpp, of linalg_inv_ex: -result.mH() @ (grad @ result.mH())
void inverse_backward(BackwardCall& call) {  // saved: result
  const NoGrad no_grad(call.tape.modes);
  const Tensor turned = transposed(call.saved(0));
  const Tensor product = matmul(call.gradient(), turned);
  const Tensor both = matmul(turned, product);
  call.set(0, negated(both));
}

Tensor inverse(const Tensor& a, bool checks, Tensor* infos_out) {
  Node* node = record(aten::kInverse, inverse_backward, {&a});
  Tensor result = column_major(a, a.shape(), aten::kInverse);
  Tensor infos = empty_per_matrix(a, DType::kInt32, aten::kInverse);
  {
    Lu lu = empty_lu(a);
    factorise(a);
    solve_by_lu(a, result, false);
    drop(lu.pivots, lu.factors);
  }
  if (checks) check_errors(infos);
  if (infos_out != nullptr) *infos_out = std::move(infos);
  return finish(node, std::move(result), true);
}

void inverse_row(RecordedCall& call) {
  check_matrices(call, call.tensor(0));
  call.returns(inverse(call.tensor(0), true, nullptr));
}

void inverse_ex_row(RecordedCall& call) {  // A check_errors
  check_matrices(call, call.tensor(0));
  Tensor infos;
  call.returns(inverse(call.tensor(0), call.boolean_or(1, false), &infos));
  call.returns(std::move(infos));
}

// --- determinants ---------------------------------------------------------------------------------------------------

/// BatchLinearAlgebra.cpp, lu_det_P: -1 to the power of how many pivots are in another row.
Tensor sign_of(const Tensor& pivots) {
  Tape& tape = pivots.tape();
  const Tensor rows = filled(tape, {pivots.size(-1)}, DType::kInt32, aten::kArange);
  const Tensor differs = filled(tape, pivots.shape(), DType::kBool, aten::kNe);
  Shape shape = pivots.shape();
  --shape.rank;
  Tensor sign = filled(tape, shape, DType::kInt64, aten::kSum);
  tape.memory.scratch(pivots.elements() * size_of(DType::kInt64), aten::kSum);
  return sign;
}

Tensor diagonal_stack(const Tensor& a) { return filled(a.tape(), a.shape(), a.dtype(), aten::kDiagEmbed); }

void determinant_backward(BackwardCall& call) {  // saved: a, LU, pivots, result
  const NoGrad no_grad(call.tape.modes);
  const Tensor &a = call.saved(0), &result = call.saved(3);
  const Tensor scaled = pointwise(aten::kMul, {&call.gradient(), &result}, 1);
  const Tensor diagonal = diagonal_stack(a);
  Tensor moved;
  {  // what is zero on the diagonal is not quite
    const Tensor zeros = empty_per_matrix(a, DType::kBool, a.size(-1), aten::kEq);
    Tensor least = call.tape.empty({}, a.dtype(), aten::kFullLike),
           zero = call.tape.empty({}, a.dtype(), aten::kFullLike);
    const Tensor more = empty_per_matrix(a, a.dtype(), a.size(-1), aten::kWhere);
    drop(zero, least);
    const Tensor added = diagonal_stack(a);
    moved = column_major(a, a.shape(), aten::kAdd);
  }
  Tensor of_a = column_major(a, a.shape(), aten::kSolve);
  solve_by_lu(moved, of_a, false);
  call.set(0, std::move(of_a));
}

void determinant_row(RecordedCall& call) {
  const Tensor& a = call.tensor(0);
  check_matrices(call, a);
  Node* node = record(aten::kDeterminant, determinant_backward, {&a}, {&a});
  Tensor result = empty_per_matrix(a, a.dtype(), aten::kDeterminant);
  Lu lu = empty_lu(a);
  {
    const Tensor infos = empty_per_matrix(a, DType::kInt32, aten::kDeterminant);
    factorise(a);
    const Tensor product = empty_per_matrix(a, a.dtype(), aten::kProd);
    const Tensor sign = sign_of(lu.pivots);
  }
  if (node != nullptr) {
    call.tape.autograd.save(*node, lu.factors);
    call.tape.autograd.save(*node, lu.pivots);
  }
  call.returns(finish(node, std::move(result), true));
}

void slogdet_backward(BackwardCall& call) {  // saved: a, LU, pivots
  const NoGrad no_grad(call.tape.modes);
  const Tensor& a = call.saved(0);
  if (!call.gradient(1).defined()) return;  // the sign's alone is zero
  const Tensor diagonal = diagonal_stack(a);
  Tensor of_a = column_major(a, a.shape(), aten::kSolve);
  solve_by_lu(a, of_a, false);
  call.set(0, std::move(of_a));
}

std::pair<Tensor, Tensor> slogdet(const Tensor& a) {
  Node* node = record(aten::kSlogdet, slogdet_backward, {&a}, {&a});
  Tensor sign = empty_per_matrix(a, a.dtype(), aten::kSlogdet),
         logarithm = empty_per_matrix(a, a.dtype(), aten::kSlogdet);
  Lu lu = empty_lu(a);
  {
    const Tensor infos = empty_per_matrix(a, DType::kInt32, aten::kSlogdet);
    factorise(a);
    {
      const Tensor parity = sign_of(lu.pivots);
      const Tensor signs = empty_per_matrix(a, a.dtype(), a.size(-1), aten::kSlogdet);
      const Tensor product = empty_per_matrix(a, a.dtype(), aten::kProd);
    }
    const Tensor logarithms = empty_per_matrix(a, a.dtype(), a.size(-1), aten::kSlogdet);
  }
  if (node != nullptr) {
    Tape& tape = a.tape();
    tape.autograd.save(*node, lu.factors);
    tape.autograd.save(*node, lu.pivots);
    tape.autograd.set_history(node, sign);
    tape.autograd.set_history(node, logarithm);
    tape.autograd.save(*node, sign);
  }
  return {std::move(sign), std::move(logarithm)};
}

void slogdet_row(RecordedCall& call) {
  check_matrices(call, call.tensor(0));
  auto [sign, logarithm] = slogdet(call.tensor(0));
  call.returns(std::move(sign));
  call.returns(std::move(logarithm));
}

/// BatchLinearAlgebra.cpp, logdet: NaN where the sign is negative.
void logdet_row(RecordedCall& call) {
  check_matrices(call, call.tensor(0));
  const auto [sign, logarithm] = slogdet(call.tensor(0));
  Tensor negative = filled(call.tape, sign.shape(), DType::kBool, aten::kEq);
  Tensor nan = call.tape.empty({}, logarithm.dtype(), aten::kFullLike);
  Node* node = record(aten::kWhere,
                      [](BackwardCall& back) {  // saved: where it is negative
                        const NoGrad no_grad(back.tape.modes);
                        const Tensor zero = back.tape.empty({}, back.gradient().dtype(), aten::kFullLike);
                        back.set(0, pointwise(aten::kWhere, {&back.gradient()}, 1));
                      },
                      {&logarithm}, {&negative});
  Tensor result = pointwise(aten::kWhere, {&logarithm}, 1);
  call.returns(finish(node, std::move(result)));
}

void lu_factor_row(RecordedCall& call) {  // A pivot
  const Tensor& a = call.tensor(0);
  check_matrices(call, a);
  if (a.requires_grad()) call.refuse("what is differentiated");
  Lu lu = empty_lu(a);
  {
    const Tensor infos = empty_per_matrix(a, DType::kInt32, aten::kFactoriseLu);
    factorise(a);
    check_errors(infos);
  }
  call.returns(std::move(lu.factors));
  call.returns(std::move(lu.pivots));
}

constexpr OperatorRow kRows[] = {
    {"solve", "A B left", solve_row}, {"inv", "A", inverse_row},
    {"inverse", "A", inverse_row},    {"inv_ex", "A check_errors", inverse_ex_row},
    {"det", "A", determinant_row},    {"slogdet", "A", slogdet_row},
    {"logdet", "A", logdet_row},      {"lu_factor", "A pivot", lu_factor_row},
};

}  // namespace

std::span<const OperatorRow> system_rows() { return kRows; }

}  // namespace memcalc
