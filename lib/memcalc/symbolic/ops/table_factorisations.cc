// Rows of the operator table that factorise matrices: Cholesky's, QR, eigenvalues, singular values. Sources:
// aten/src/ATen/native/BatchLinearAlgebra.cpp, cuda/linalg/BatchLinearAlgebra.cpp and BatchLinearAlgebraLib.cpp,
// torch/csrc/autograd/FunctionsManual.cpp of torch 2.11; the streams of 2,718 factorisations on an H200
// (tests/measured/linalg_streams_h200.jsonl.gz). LU: table_systems.cc.
// MIRRORS(torch, "cuda/linalg/BatchLinearAlgebraLib.cpp", "2.11.0")
// MIRRORS(torch, "torch/csrc/autograd/FunctionsManual.cpp", "2.11.0")
#include <algorithm>
#include <initializer_list>
#include <utility>

#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/matrices.h"
#include "memcalc/symbolic/ops/operator_table.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/solve.h"
#include "memcalc/symbolic/ops/solver_workspace.h"
#include "memcalc/symbolic/ops/triangle.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {
namespace {

/// An assumption: of QR and singular values in float64 cuSOLVER was not asked, twice the bytes of float32's are taken.
std::int64_t scaled_to(DType dtype, std::int64_t bytes) { return bytes * size_of(dtype) / size_of(DType::kFloat32); }

/// Of several results: all are the node's, which saves them.
void keep_results(Node* node, std::initializer_list<Tensor*> results) {
  Tape& tape = (*results.begin())->tape();
  for (Tensor* each : results) tape.autograd.set_history(node, *each);
  if (node == nullptr) return;
  for (const Tensor* each : results) tape.autograd.save(*node, *each);
}

// --- Cholesky -------------------------------------------------------------------------------------------------------

struct CholeskyPayload {
  bool upper = false;
};

/// FunctionsManual.cpp, cholesky_backward: two triangular systems around the symmetric part of L^H times the gradient.
void cholesky_backward(BackwardCall& call) {  // saved: L
  const NoGrad no_grad(call.tape.modes);
  const bool upper = call.payload<CholeskyPayload>().upper;
  const Tensor low = upper ? transposed(call.saved(0)) : call.saved(0);
  const Tensor gradient = upper ? transposed(call.gradient()) : call.gradient();
  Tensor part = lower_triangle(matmul(transposed(low), gradient));
  {
    const Tensor below = lower_triangle(part), turned = transposed(below);
    const Tensor sum = pointwise(aten::kAdd, {&part, &turned}, 1);
    part = pointwise(aten::kMul, {&sum}, 1);
  }
  part = solved_triangle(transposed(low), part);
  call.set(0, solved_triangle(low, part));
}

Tensor cholesky(const Tensor& a, bool upper, bool checks, Tensor* infos_out) {
  Tape& tape = a.tape();
  Node* node = record(aten::kCholesky, cholesky_backward, {&a});
  if (node != nullptr) node->payload.set(CholeskyPayload{upper});
  Tensor result = column_major(a, a.shape(), aten::kCholesky);
  Tensor infos = empty_per_matrix(a, DType::kInt32, aten::kCholesky);
  const Matrices of = matrices_of(a);
  if (of.count == 1)
    use_workspace(tape, cusolver::cholesky_bytes(of.rows), aten::kCholesky);
  else
    use_pointer_arrays(tape, of.count, 1, aten::kCholesky);
  if (checks) check_errors(infos);
  if (infos_out != nullptr) *infos_out = std::move(infos);
  infos.reset();
  return finish(node, std::move(result), true);
}

void cholesky_row(RecordedCall& call) {  // A upper
  check_matrices(call, call.tensor(0));
  call.returns(cholesky(call.tensor(0), call.boolean_or(1, false), true, nullptr));
}

void cholesky_ex_row(RecordedCall& call) {  // A upper check_errors
  check_matrices(call, call.tensor(0));
  Tensor infos;
  call.returns(cholesky(call.tensor(0), call.boolean_or(1, false), call.boolean_or(2, false), &infos));
  call.returns(std::move(infos));
}

// --- QR -------------------------------------------------------------------------------------------------------------

/// FunctionsManual.cpp, linalg_qr_backward, of at least as many rows as columns.
void qr_backward(BackwardCall& call) {  // saved: Q, R
  const NoGrad no_grad(call.tape.modes);
  const Tensor &q = call.saved(0), &r = call.saved(1);
  const Tensor &of_q = call.gradient(0), &of_r = call.gradient(1);
  Tensor part;
  if (of_r.defined()) part = matmul(of_r, transposed(r));
  if (of_q.defined()) {
    const Tensor product = matmul(transposed(q), of_q);
    part = part.defined() ? pointwise(aten::kSub, {&part, &product}, 1) : pointwise(aten::kNeg, {&product}, 1);
  }
  {
    const Tensor upper = upper_triangle(part), turned = transposed(upper);
    const Tensor symmetric = pointwise(aten::kAdd, {&upper, &turned}, 1);
    part = matmul(q, symmetric);
  }
  if (of_q.defined()) part = pointwise(aten::kAdd, {&part, &of_q}, 1);
  Tensor result = column_major(part, part.shape(), aten::kLinalgSolveTriangular);
  point_at_triangles(call.tape, matrices_of(r).count, r.size(-1));
  call.set(0, std::move(result));
}

void qr_row(RecordedCall& call) {  // A mode
  const Tensor& a = call.tensor(0);
  check_matrices(call, a, false);
  const Matrices of = matrices_of(a);
  if (call.text_or(1, "reduced") != "reduced") call.refuse("another mode than 'reduced'");
  if (of.rows < of.columns && a.requires_grad()) call.refuse("fewer rows than columns");
  Tape& tape = call.tape;
  Node* node = record(aten::kQr, qr_backward, {&a});
  const std::int64_t least = std::min(of.rows, of.columns);
  Shape of_q = a.shape(), of_r = a.shape();
  of_q[-1] = least;
  of_r[-2] = least;
  Tensor q = column_major(a, of_q, aten::kQr), r = column_major(a, of_r, aten::kQr);
  {
    const Tensor scales = empty_per_matrix(a, a.dtype(), least, aten::kQr);
    // cuda/linalg/BatchLinearAlgebra.cpp, geqrf_kernel
    if (of.rows <= 256 && of.count >= std::max<std::int64_t>(2, of.rows / 16)) {
      tape.memory.use_cublas(false);
      use_pointer_arrays(tape, of.count, 2, aten::kQr);
    } else {
      const Tensor infos = tape.empty({1}, DType::kInt32, aten::kQr);
      use_workspace(tape, scaled_to(a.dtype(), cusolver::householder_bytes(of.columns)), aten::kQr, of.count);
    }
    const Tensor infos = tape.empty({1}, DType::kInt32, aten::kQr);
    use_workspace(tape, scaled_to(a.dtype(), cusolver::orthogonal_bytes(of.rows, least)), aten::kQr, of.count);
  }
  keep_results(node, {&q, &r});
  call.returns(std::move(q));
  call.returns(std::move(r));
}

// --- eigenvalues ----------------------------------------------------------------------------------------------------

/// FunctionsManual.cpp, linalg_eig_backward of Hermitian matrices.
void eigh_backward(BackwardCall& call) {  // saved: values, vectors
  const NoGrad no_grad(call.tape.modes);
  const Tensor &values = call.saved(0), &vectors = call.saved(1);
  const Tensor &of_values = call.gradient(0), &of_vectors = call.gradient(1);
  if (!of_values.defined() && !of_vectors.defined()) return;
  if (!of_vectors.defined()) {
    const Tensor rows = unsqueeze(of_values, of_values.rank() - 1);
    const Tensor scaled = pointwise(aten::kMul, {&vectors, &rows}, 1);
    return call.set(0, matmul(scaled, transposed(vectors)));
  }
  const Tensor product = matmul(transposed(vectors), of_vectors);
  Tensor quotient;
  {
    const Tensor rows = unsqueeze(values, values.rank() - 1), columns = unsqueeze(values, values.rank());
    const Tensor distances = pointwise(aten::kSub, {&rows, &columns}, 1);
    quotient = pointwise(aten::kDiv, {&product, &distances}, 1);
  }
  quotient = pointwise(aten::kAdd, {&quotient}, 1);  // with the values' gradient on its diagonal
  const Tensor right = matmul(quotient, transposed(vectors));
  call.set(0, matmul(vectors, right));
}

/// cuda/linalg/BatchLinearAlgebraLib.cpp, linalg_eigh_cusolver: stacks of small matrices at once; by Jacobi's rotations
/// one by one, of float32 up to 512; the others by divide and conquer.
void find_eigenvalues(const Tensor& a) {
  const Matrices of = matrices_of(a);
  Tape& tape = a.tape();
  if (of.count > 1 && of.rows <= 32) {
    use_workspace(tape, cusolver::stacked_bytes(of.rows, of.count, a.dtype()), aten::kEigh);
  } else if (a.dtype() == DType::kFloat32 && of.rows >= 32 && of.rows <= 512) {
    use_workspace(tape, cusolver::jacobi_bytes(of.rows), aten::kEigh, of.count);
  } else {
    use_workspace(tape, cusolver::divide_and_conquer_bytes(of.rows, a.dtype()), aten::kEigh, of.count);
  }
}

/// `values_alone`: eigvalsh, which lets the vectors go where nothing is differentiated.
void eigh(RecordedCall& call, bool values_alone) {
  const Tensor& a = call.tensor(0);
  check_matrices(call, a);
  Node* node = record(aten::kEigh, eigh_backward, {&a});
  Tensor vectors, values;
  const auto make_values = [&] { values = empty_per_matrix(a, a.dtype(), a.size(-1), aten::kEigh); };
  if (values_alone && node == nullptr) make_values();
  vectors = column_major(a, a.shape(), aten::kEigh);
  if (!values.defined()) make_values();
  {
    const Tensor infos = empty_per_matrix(a, DType::kInt32, aten::kEigh);
    find_eigenvalues(a);
    check_errors(infos);
  }
  keep_results(node, {&values, &vectors});
  call.returns(std::move(values));
  if (!values_alone) call.returns(std::move(vectors));
}

// --- singular values ------------------------------------------------------------------------------------------------

/// (x - x^H) / distances, times the singular values of rows or columns.
Tensor skewed(Tensor product, const Tensor& distances, const Tensor& values) {
  const Tensor turned = transposed(product);
  const Tensor skew = pointwise(aten::kSub, {&product, &turned}, 1);
  product.reset();
  const Tensor quotient = pointwise(aten::kDiv, {&skew, &distances}, 1);
  return pointwise(aten::kMul, {&quotient, &values}, 1);
}

/// What U's gradient adds for the space that it leaves out, of more rows than columns; `flat`: its columns.
Tensor with_rest(Tensor inner, const Tensor& u, const Tensor& of_u, const Tensor& flat) {
  Tensor outer = matmul(u, inner);
  const Tensor scaled = pointwise(aten::kDiv, {&of_u, &flat}, 1);
  const Tensor within = matmul(transposed(u), scaled);
  const Tensor projected = matmul(u, within);
  const Tensor rest = pointwise(aten::kSub, {&scaled, &projected}, 1);
  return pointwise(aten::kAdd, {&outer, &rest}, 1);
}

/// FunctionsManual.cpp, svd_backward.
void svd_backward(BackwardCall& call) {  // saved: U, S, Vh
  const NoGrad no_grad(call.tape.modes);
  const Tensor &u = call.saved(0), &values = call.saved(1), &vh = call.saved(2);
  const Tensor &of_u = call.gradient(0), &of_values = call.gradient(1), &of_vh = call.gradient(2);
  const std::int64_t m = u.size(-2), n = vh.size(-1);
  const int last = values.rank() - 1;
  if (!of_u.defined() && !of_vh.defined()) {
    if (!of_values.defined()) return;
    const Tensor scale = unsqueeze(of_values, m >= n ? last + 1 : last);
    const Tensor scaled = pointwise(aten::kMul, {m >= n ? &vh : &u, &scale}, 1);
    return call.set(0, m >= n ? matmul(u, scaled) : matmul(scaled, vh));
  }
  const Tensor rows = unsqueeze(values, last), columns = unsqueeze(values, last + 1);
  Tensor inner;
  {
    Tensor of_left = of_u.defined() ? matmul(transposed(u), of_u) : Tensor();
    Tensor of_right = of_vh.defined() ? matmul(vh, transposed(of_vh)) : Tensor();
    const Tensor squares = pointwise(aten::kMul, {&values, &values}, 1);
    const Tensor of_rows = unsqueeze(squares, last), of_columns = unsqueeze(squares, last + 1);
    const Tensor distances = pointwise(aten::kSub, {&of_rows, &of_columns}, 1);
    if (of_left.defined()) inner = skewed(std::move(of_left), distances, rows);
    if (of_right.defined()) {
      Tensor other = skewed(std::move(of_right), distances, columns);
      inner = inner.defined() ? pointwise(aten::kAdd, {&inner, &other}, 1) : std::move(other);
    }
  }
  if (of_values.defined()) {
    const Tensor diagonal = filled(call.tape, inner.shape(), inner.dtype(), aten::kDiagEmbed);
    inner = pointwise(aten::kAdd, {&inner, &diagonal}, 1);
  }
  if (m > n && of_u.defined()) return call.set(0, matmul(with_rest(std::move(inner), u, of_u, rows), vh));
  if (m < n && of_vh.defined()) {
    const Tensor turned = transposed(vh), gradient = transposed(of_vh);
    const Tensor right = with_rest(std::move(inner), turned, gradient, rows);
    return call.set(0, matmul(u, transposed(right)));
  }
  const Tensor product = matmul(u, inner);
  call.set(0, matmul(product, vh));
}

/// cuda/linalg/BatchLinearAlgebraLib.cpp, svd_cusolver_gesvdj: on a copy, one workspace for all matrices; those of at
/// most 32 by 32 as a stack, whose U and V are square.
void find_singular_values(const Tensor& a, bool with_vectors) {
  const Matrices of = matrices_of(a);
  Tape& tape = a.tape();
  const std::int64_t least = std::min(of.rows, of.columns);
  const bool small = of.rows <= 32 && of.columns <= 32;
  const Tensor copy = column_major(a, a.shape(), aten::kSvd);
  const auto numbers = [&](std::int64_t count) { return tape.empty({count}, a.dtype(), aten::kSvd); };
  Tensor u, v;
  const std::int64_t times = small ? of.count : 1;
  if (!with_vectors || (small && of.rows > least)) u = numbers(times * of.rows * (with_vectors ? of.rows : least));
  if (!with_vectors || (small && of.columns > least))
    v = numbers(times * of.columns * (with_vectors ? of.columns : least));
  const std::int64_t bytes = small ? cusolver::kSmallSingularBytes : cusolver::singular_bytes(of.rows, of.columns);
  use_workspace(tape, scaled_to(a.dtype(), bytes), aten::kSvd);
}

struct Singular {
  Tensor u, values, vh;
};

Singular svd(const Tensor& a, bool values_alone) {
  Node* node = record(aten::kSvd, svd_backward, {&a});
  const bool with_vectors = !values_alone || node != nullptr;
  const std::int64_t least = std::min(a.size(-1), a.size(-2));
  Shape of_u = a.shape(), of_vh = a.shape();
  of_u[-1] = least;
  of_vh[-2] = least;
  Singular found;
  if (with_vectors) {
    found.u = column_major(a, of_u, aten::kSvd);
    found.vh = column_major(a, of_vh, aten::kSvd);
  }
  found.values = empty_per_matrix(a, a.dtype(), least, aten::kSvd);
  {
    const Tensor infos = empty_per_matrix(a, DType::kInt32, aten::kSvd);
    find_singular_values(a, with_vectors);
    check_errors(infos);
  }
  if (node != nullptr) keep_results(node, {&found.u, &found.values, &found.vh});
  return found;
}

void svd_row(RecordedCall& call) {  // A full_matrices driver
  const Tensor& a = call.tensor(0);
  check_matrices(call, a, false);
  if (call.boolean_or(1, true) && a.size(-1) != a.size(-2)) call.refuse("full_matrices of what is not square");
  if (call.has(2)) call.refuse("a driver");
  Singular found = svd(a, false);
  for (Tensor* each : {&found.u, &found.values, &found.vh}) call.returns(std::move(*each));
}

void svdvals_row(RecordedCall& call) {  // A driver
  check_matrices(call, call.tensor(0), false);
  if (call.has(1)) call.refuse("a driver");
  call.returns(svd(call.tensor(0), true).values);
}

void eigh_row(RecordedCall& call) { eigh(call, false); }
void eigvalsh_row(RecordedCall& call) { eigh(call, true); }

constexpr OperatorRow kRows[] = {
    {"cholesky", "A upper", cholesky_row},
    {"cholesky_ex", "A upper check_errors", cholesky_ex_row},
    {"qr", "A mode", qr_row},
    {"eigh", "A UPLO", eigh_row},
    {"eigvalsh", "A UPLO", eigvalsh_row},
    {"svd", "A full_matrices driver", svd_row},
    {"svdvals", "A driver", svdvals_row},
};

}  // namespace

std::span<const OperatorRow> factorisation_rows() { return kRows; }

}  // namespace memcalc
