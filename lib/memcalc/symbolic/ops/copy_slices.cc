// torch/csrc/autograd/functions/tensor.cpp, CopySlices: the in-place operator on a view becomes part of the history of
// the tensor that is viewed.
#include "memcalc/symbolic/ops/copy_slices.h"

#include <memory>
#include <utility>

#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kCopy{"aten::copy_"}, kCopySlices{"CopySlices"}, kClone{"aten::clone"}, kZeros{"aten::zeros_like"};
constexpr Operator kCopyBackwards{"CopyBackwards"};

void move_kernel(const Tensor& x) {
  x.tape().kernels.add(kCopy, OperatorClass::kMovement, x.dtype(), 0, 2.0 * static_cast<double>(x.bytes()));
}

constexpr int kSourceDtype = 1;  // attribute

/// What of a tensor a view shows; node.shape: the view's.
struct Slice {
  Shape base_strides;
  Shape strides;
};

void copy_slices_backward(BackwardCall& call) {  // inputs: base, source
  Tape& tape = call.tape;
  const Tensor& gradient = call.gradient();
  const auto& slice = *static_cast<const Slice*>(call.node.context);
  // A part of the whole is not dense, so its copy is laid out anew.
  const Shape layout = like_strides(call.node.shape, slice.strides);
  Tensor whole = tape.empty_strided(gradient.shape(), slice.base_strides, gradient.dtype(), kCopySlices);
  const Tensor part = tape.empty_strided(call.node.shape, layout, gradient.dtype(), kClone);
  move_kernel(whole);
  Tensor zeros;  // the base's own gradient where the source was written
  if (call.needs(0)) zeros = tape.empty_strided(call.node.shape, layout, gradient.dtype(), kZeros);
  if (call.needs(1)) call.set(1, to_dtype(part, static_cast<DType>(call.node.attributes[kSourceDtype])));
  if (call.needs(0)) call.set(0, std::move(whole));
}

void copy_backward(BackwardCall& call) {  // torch/csrc/autograd/functions/tensor.cpp, CopyBackwards
  const Tensor& gradient = call.gradient();
  if (call.needs(0)) {
    call.set(0, call.tape.empty_strided(gradient.shape(), like_strides(gradient.shape(), gradient.strides()),
                                        gradient.dtype(), kZeros));
  }
  if (call.needs(1)) call.set(1, to_dtype(gradient, static_cast<DType>(call.node.attributes[kSourceDtype])));
}

Tensor copy_into(const Tensor& base, const Shape& shape, const Shape& strides, const Tensor& source) {
  Tape& tape = base.tape();
  const Tensor* inputs[] = {&base, &source};
  Node* node = tape.autograd.record(kCopySlices, copy_slices_backward, inputs, 2);
  if (node != nullptr) {
    node->shape = shape;
    node->attributes[kSourceDtype] = static_cast<std::int64_t>(source.dtype());
    auto slice = std::make_shared<Slice>(Slice{base.strides(), strides});
    node->context = slice.get();
    node->owner = std::move(slice);
  }
  Tensor result = tape.detach(base);
  move_kernel(source);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace

Tensor copy_into_columns(const Tensor& base, std::int64_t start, const Tensor& source) {
  if (start + source.size(-1) > base.size(-1)) throw Error(ErrorCode::kInternal, "copied columns do not fit");
  return copy_into(base, source.shape(), base.strides(), source);
}

Tensor copy_into_view(const Tensor& base, const Tensor& view, const Tensor& source) {
  return copy_into(base, view.shape(), view.strides(), source);
}

Tensor copy_in_place(const Tensor& x, const Tensor& source) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &source};
  Node* node = tape.autograd.record(kCopyBackwards, copy_backward, inputs, 2);
  if (node != nullptr) node->attributes[kSourceDtype] = static_cast<std::int64_t>(source.dtype());
  Tensor result = tape.detach(x);
  move_kernel(source);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
