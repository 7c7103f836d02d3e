// torch/csrc/autograd/functions/tensor.cpp, CopySlices: the in-place operator on a view becomes part of the history of
// the tensor that is viewed.
#include "memcalc/symbolic/ops/copy_slices.h"

#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kCopy{"aten::copy_"}, kCopySlices{"CopySlices"}, kClone{"aten::clone"}, kZeros{"aten::zeros_like"};

void move_kernel(const Tensor& x) {
  x.tape().kernels.add(kCopy, OperatorClass::kMovement, x.dtype(), 0, 2.0 * static_cast<double>(x.bytes()));
}

constexpr int kSourceDtype = 1;  // attribute

void copy_slices_backward(BackwardCall& call) {  // inputs: base, source; node.shape: the slice
  Tape& tape = call.tape;
  const Tensor& gradient = call.gradient();
  // Columns of a row-major tensor: not dense, so their copy is laid out anew.
  const Shape layout = like_strides(call.node.shape, gradient.strides());
  Tensor whole = tape.empty_strided(gradient.shape(), gradient.strides(), gradient.dtype(), kCopySlices);
  const Tensor slice = tape.empty_strided(call.node.shape, layout, gradient.dtype(), kClone);
  move_kernel(whole);
  Tensor zeros;  // the base's own gradient where the source was written
  if (call.needs(0)) zeros = tape.empty_strided(call.node.shape, layout, gradient.dtype(), kZeros);
  if (call.needs(1)) call.set(1, to_dtype(slice, static_cast<DType>(call.node.attributes[kSourceDtype])));
  if (call.needs(0)) call.set(0, std::move(whole));
}

}  // namespace

Tensor copy_into_columns(const Tensor& base, std::int64_t start, const Tensor& source) {
  if (start + source.size(-1) > base.size(-1)) throw Error(ErrorCode::kInternal, "copied columns do not fit");
  Tape& tape = base.tape();
  const Tensor* inputs[] = {&base, &source};
  Node* node = tape.autograd.record(kCopySlices, copy_slices_backward, inputs, 2);
  if (node != nullptr) {
    node->shape = source.shape();
    node->attributes[kSourceDtype] = static_cast<std::int64_t>(source.dtype());
  }
  Tensor result = tape.detach(base);
  move_kernel(source);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
