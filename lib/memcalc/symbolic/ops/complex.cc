#include "memcalc/symbolic/ops/complex.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// The other reading of the same storage; strides count elements of the type.
Tensor reinterpret(const Tensor& x, DType dtype) {
  Shape shape = x.shape();
  Shape strides = x.strides();
  if (dtype == DType::kComplex64) {
    --shape.rank;
    --strides.rank;
    for (int i = 0; i < strides.rank; ++i) strides[i] /= 2;
  } else {
    for (int i = 0; i < strides.rank; ++i) strides[i] *= 2;
    shape.dims[static_cast<std::size_t>(shape.rank++)] = 2;
    strides.dims[static_cast<std::size_t>(strides.rank++)] = 1;
  }
  Tensor result = x.tape().alias(x, shape, strides, true);
  result.impl()->dtype = dtype;
  return result;
}

template <DType dtype>
void reinterpret_backward(BackwardCall& call) {
  call.set(0, reinterpret(contiguous(call.gradient()), dtype));
}

/// grad * other.conj(): the conjugate becomes a copy.
void multiply_complex_backward(BackwardCall& call) {
  const Tensor& other = call.saved(0);
  const Tensor conjugate = call.tape.empty(other.shape(), other.dtype(), aten::kClone);
  call.set(0, pointwise(aten::kMul, {&call.gradient(), &conjugate}, 6));
}

Tensor record_reinterpret(const AtenOperator& op, BackwardFunction backward, const Arg& x, DType dtype) {
  const Tensor* inputs[] = {&*x};
  Node* node = x->tape().autograd.record(op, backward, inputs, 1);
  Tensor result = reinterpret(*x, dtype);
  x->tape().autograd.set_history(node, result);
  return result;
}

}  // namespace

Tensor view_as_complex(Arg x) {
  const OperatorCall call(x);
  return record_reinterpret(aten::kViewAsComplex, reinterpret_backward<DType::kFloat32>, x, DType::kComplex64);
}

Tensor view_as_real(Arg x) {
  const OperatorCall call(x);
  return record_reinterpret(aten::kViewAsReal, reinterpret_backward<DType::kComplex64>, x, DType::kFloat32);
}

Tensor polar(const Tensor& absolute, const Tensor& angle) {
  return absolute.tape().empty(angle.shape(), DType::kComplex64, aten::kPolar);
}

Tensor multiply_complex(Arg x, const Tensor& y) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(aten::kMul, multiply_complex_backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, y);
  Tensor result = pointwise(aten::kMul, {&*x, &y}, 6);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
