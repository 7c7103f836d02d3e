// MIRRORS(torch, "FunctionsManual.cpp", "2.11.0")
// MIRRORS(torch, "Linear.cpp", "2.11.0")
// MIRRORS(torch, "LinearAlgebra.cpp", "2.11.0")
// MIRRORS(torch, "cuda/Blas.cpp", "2.11.0")
#include "memcalc/symbolic/ops/linear.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/matrix_vector.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/recorded_input.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

bool is_column_major(const Shape& shape, const Shape& strides) { return strides[0] == 1 && strides[1] == shape[0]; }

/// cuBLAS takes either order of each operand without a copy.
Transposed transposed(bool first, bool second) {
  if (first) return second ? Transposed::kBoth : Transposed::kFirst;
  return second ? Transposed::kSecond : Transposed::kNone;
}

bool is_transposed(const Tensor& x) {
  const int rows = x.rank() - 2;
  return x.strides()[rows] == 1 && x.strides()[rows + 1] != 1;
}

/// The product itself: [n, k] x [k, m], no autograd.
Tensor raw_mm(const Operator& op, const Tensor& a, const Tensor& b, bool fused_bias = false) {
  Tape& tape = a.tape();
  Tensor result = tape.empty({a.size(0), b.size(1)}, a.dtype(), op);
  tape.memory.use_cublas(fused_bias);
  tape.kernels.product(op, a.dtype(), 1, a.size(0), b.size(1), a.size(1), KernelKind::kMatrixProduct,
                       transposed(is_transposed(a), is_transposed(b)));
  return result;
}

Tensor raw_bmm(const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  Tensor result = tape.empty({a.size(0), a.size(1), b.size(2)}, a.dtype(), aten::kBmm);
  tape.memory.use_cublas(false);
  tape.kernels.product(aten::kBmm, a.dtype(), a.size(0), a.size(1), b.size(2), a.size(2), KernelKind::kMatrixProduct,
                       transposed(is_transposed(a), is_transposed(b)));
  return result;
}

/// FunctionsManual.cpp, mm_mat1_backward: a column-major operand gets a column-major gradient.
Tensor first_gradient(const Tensor& gradient, const Tensor& second, bool column_major) {
  if (column_major) return t(raw_mm(aten::kMm, second, t(gradient)));
  return raw_mm(aten::kMm, gradient, t(second));
}

Tensor second_gradient(const Tensor& gradient, const Tensor& first, bool column_major) {
  if (column_major) return t(raw_mm(aten::kMm, t(gradient), first));
  return raw_mm(aten::kMm, t(first), gradient);
}

struct ProductPayload {
  bool first_column_major = false, second_column_major = false;
};

void remember_layouts(Node* node, const Tensor& a, const Tensor& b) {
  node->payload.set(ProductPayload{.first_column_major = is_column_major(a.shape(), a.strides()),
                                   .second_column_major = is_column_major(b.shape(), b.strides())});
}

void addmm_backward(BackwardCall& call) {          // inputs: bias, mat1, mat2; saved: mat1, mat2 as far as needed
  const int mat2 = was_recorded(call, 2) ? 1 : 0;  // its place among the saved
  if (call.needs(1)) {
    call.set(1, first_gradient(call.gradient(), call.saved(mat2), call.payload<ProductPayload>().first_column_major));
  }
  if (call.needs(2)) {
    call.set(2, second_gradient(call.gradient(), call.saved(0), call.payload<ProductPayload>().second_column_major));
  }
  if (call.needs(0)) call.set(0, call.gradient());  // summed to the bias's shape when it is validated
}

void mm_backward(BackwardCall& call) {             // inputs: self, mat2; saved: mat2, self (alphabetical)
  const int self = was_recorded(call, 0) ? 1 : 0;  // its place among the saved
  if (call.needs(1)) {
    call.set(1, second_gradient(call.gradient(), call.saved(self), call.payload<ProductPayload>().second_column_major));
  }
  if (call.needs(0)) {
    call.set(0, first_gradient(call.gradient(), call.saved(0), call.payload<ProductPayload>().first_column_major));
  }
}

void bmm_backward(BackwardCall& call) {
  const int self = was_recorded(call, 0) ? 1 : 0;  // its place among the saved
  if (call.needs(1)) call.set(1, raw_bmm(transpose(call.saved(self), 1, 2), call.gradient()));
  if (call.needs(0)) call.set(0, raw_bmm(call.gradient(), transpose(call.saved(0), 1, 2)));
}

Tensor mm(Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a, &*b};
  Node* node = tape.autograd.record(aten::kMm, mm_backward, inputs, 2);
  if (node != nullptr) {
    remember_layouts(node, *a, *b);
    if (a->requires_grad()) tape.autograd.save(*node, *b);
    if (b->requires_grad()) tape.autograd.save(*node, *a);
  }
  auto [result] = run_or_recall<1>(tape, ListedOperator::kMm, [&] { return std::array{raw_mm(aten::kMm, *a, *b)}; });
  tape.autograd.set_history(node, result);
  return std::move(result);
}

Tensor bmm(Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a, &*b};
  Node* node = tape.autograd.record(aten::kBmm, bmm_backward, inputs, 2);
  if (node != nullptr) {
    if (a->requires_grad()) tape.autograd.save(*node, *b);
    if (b->requires_grad()) tape.autograd.save(*node, *a);
  }
  Tensor result = raw_bmm(*a, *b);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor raw_addmm(const Tensor& bias, Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&bias, &*a, &*b};
  Node* node = tape.autograd.record(aten::kAddmm, addmm_backward, inputs, 3);
  if (node != nullptr) {
    remember_layouts(node, *a, *b);
    if (b->requires_grad()) tape.autograd.save(*node, *a);
    if (a->requires_grad()) tape.autograd.save(*node, *b);
  }
  // cuda/Blas.cpp: cuBLASLt fuses a bias vector unless the matrix is degenerate.
  Tensor result = raw_mm(aten::kAddmm, *a, *b, b->size(0) > 1 && b->size(1) > 1);
  tape.autograd.set_history(node, result);
  return result;
}

Shape with_last(Shape shape, std::int64_t last) {
  shape[-1] = last;
  return shape;
}

/// Float8Linear.forward while it is traced: inputs and saved: input, weight.
Tensor traced_float8_linear(const Tensor& x, const Tensor& weight) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &weight};
  Node* node = tape.autograd.record(
      kFloat8Product,
      [](BackwardCall& call) {
        const Tensor &input = call.saved(0), &matrix = call.saved(1);
        const std::int64_t rows = input.elements() / input.size(-1);
        if (call.needs(0)) {
          call.tape.kernels.product(aten::kScaledMm, input.dtype(), 1, rows, matrix.size(1), matrix.size(0));
          call.set(0, call.tape.empty(input.shape(), input.dtype(), aten::kMm));
        }
        if (call.needs(1)) {
          call.tape.kernels.product(aten::kScaledMm, input.dtype(), 1, matrix.size(0), matrix.size(1), rows);
          call.set(1, call.tape.empty(matrix.shape(), matrix.dtype(), aten::kMm));
        }
      },
      inputs, 2);
  if (node != nullptr) {
    tape.autograd.save(*node, x);
    tape.autograd.save(*node, weight);
  }
  Tensor result = tape.empty(with_last(x.shape(), weight.size(0)), x.dtype(), aten::kMm);
  tape.kernels.product(aten::kScaledMm, x.dtype(), 1, x.elements() / x.size(-1), weight.size(0), x.size(-1));
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace

Tensor addmm(const Tensor& bias, Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tensor matrix2 = autocast(aten::kAddmm, *b);  // C++ evaluates the dispatcher's arguments last to first
  Tensor matrix1 = autocast(aten::kAddmm, *a);
  Tensor vector = autocast(aten::kAddmm, bias);
  return raw_addmm(vector, matrix1, matrix2);
}

Tensor linear(Arg x, const Tensor& weight, const Tensor& bias) {
  const OperatorCall call(x);
  Tensor vector;
  if (bias.defined()) vector = autocast(aten::kLinear, bias);
  const Tensor matrix = autocast(aten::kLinear, weight);
  const Tensor input = autocast(aten::kLinear, *x);
  if (input.tape().modes.capture != nullptr && input.tape().modes.float8 != Float8::kNone) {
    Tensor product = traced_float8_linear(input, matrix);
    return bias.defined() ? product + vector : product;
  }
  const std::int64_t features = matrix.size(0);
  if (input.rank() == 2) return bias.defined() ? raw_addmm(vector, input, t(matrix)) : mm(input, t(matrix));
  const std::int64_t rows = input.elements() / input.size(-1);
  if (bias.defined() && input.is_contiguous()) {
    const Tensor flat = reshape(input, {rows, input.size(-1)});
    return view(raw_addmm(vector, flat, t(matrix)), with_last(input.shape(), features));
  }
  Tensor product = matmul(input, t(matrix));
  return bias.defined() ? add_in_place(product, vector) : product;  // Linear.cpp: without a fused bias
}

Tensor batched_product(Arg a, Arg b) {
  const OperatorCall call(a, b);
  const Tensor second = autocast(aten::kBmm, *b);
  const Tensor first = autocast(aten::kBmm, *a);
  return bmm(first, second);
}

namespace {

Shape without_last(Shape shape, int count) {
  shape.rank -= count;
  return shape;
}

/// LinearAlgebra.cpp, should_fold: a stack times one matrix is one product, unless the stack would have to be copied.
bool should_fold(const Tensor& stack, const Tensor& matrix) {
  if (stack.rank() < 3 || matrix.rank() > 2) return false;
  if (matrix.requires_grad()) return true;
  return view_strides(stack.shape(), stack.strides(), {stack.elements() / stack.size(-1), stack.size(-1)}).has_value();
}

/// Stacks whose leading dimensions differ.
Tensor broadcast_product(const Tensor& a, const Tensor& b) {
  const Shape batch = broadcast_shapes(without_last(a.shape(), 2), without_last(b.shape(), 2));
  const auto flat = [&](const Tensor& x) {
    Shape whole = batch;
    whole.dims[static_cast<std::size_t>(whole.rank++)] = x.size(-2);
    whole.dims[static_cast<std::size_t>(whole.rank++)] = x.size(-1);
    return reshape(expand(x, whole), {batch.elements(), x.size(-2), x.size(-1)});
  };
  Shape shape = batch;
  shape.dims[static_cast<std::size_t>(shape.rank++)] = a.size(-2);
  shape.dims[static_cast<std::size_t>(shape.rank++)] = b.size(-1);
  const Tensor first = flat(a);
  const Tensor second = flat(b);
  return unsafe_view(bmm(first, second), shape);
}

/// Of vectors and matrices, of which at least one is a vector: as matrices with one row or column.
Tensor product_with_vector(const Tensor& a, const Tensor& b) {
  if (a.rank() == 1) {
    const Tensor product = matmul(unsqueeze(a, 0), b);
    return squeeze(product, product.rank() - (b.rank() == 1 ? 1 : 2));
  }
  if (b.rank() == 1) {  // native/LinearAlgebra.cpp, _matmul_impl: folded to a matrix where it is a stack of them
    if (a.rank() == 2) return mv(a, b);
    return unsafe_view(mv(reshape(a, {a.elements() / a.size(-1), a.size(-1)}), b), without_last(a.shape(), 1));
  }
  const Tensor product = matmul(a, unsqueeze(b, 1));
  return squeeze(product, product.rank() - 1);
}

}  // namespace

Tensor matmul(Arg a, Arg b) {
  const OperatorCall call(a, b);
  const Tensor second = autocast(aten::kMatmul, *b);  // the dispatcher's last argument first
  const Tensor first = autocast(aten::kMatmul, *a);
  if (first.rank() == 1 || second.rank() == 1) return product_with_vector(first, second);
  if (first.rank() == 2 && second.rank() == 2) return mm(first, second);
  if (should_fold(first, second)) {
    const Tensor flat = reshape(first, {first.elements() / first.size(-1), first.size(-1)});
    return unsafe_view(mm(flat, second), with_last(first.shape(), second.size(-1)));
  }
  // Folded, too, the other way round, and the result copied back; without autograd first.t() requires no gradient.
  if (first.rank() == 2 && first.requires_grad() && first.tape().modes.grad_enabled) {
    const Tensor stack = transpose(second, -2, -1);
    const Tensor flat = reshape(stack, {stack.elements() / stack.size(-1), stack.size(-1)});
    const Tensor product = unsafe_view(mm(flat, t(first)), with_last(stack.shape(), first.size(0)));
    return contiguous(transpose(product, -2, -1));
  }
  if (first.rank() != second.rank() || !(without_last(first.shape(), 2) == without_last(second.shape(), 2)) ||
      first.rank() > 4) {
    return broadcast_product(first, second);
  }
  if (first.rank() == 3) return bmm(first, second);
  const std::int64_t batch = first.size(0) * first.size(1);
  // LinearAlgebra.cpp, _matmul_impl: expand (no change here), then flatten the batch, which copies where the
  // batch dimensions do not continue each other in memory.
  Tensor flat1 = reshape(expand(first, first.shape()), {batch, first.size(2), first.size(3)});
  Tensor flat2 = reshape(expand(second, second.shape()), {batch, second.size(2), second.size(3)});
  Tensor product = bmm(flat1, flat2);
  return unsafe_view(std::move(product), {first.size(0), first.size(1), first.size(2), second.size(3)});
}

}  // namespace memcalc
