// MIRRORS(torch, "cuda/Im2Col.cu", "2.11.0")
#include "memcalc/symbolic/ops/fold.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// cuda/Im2Col.cu and Col2Im.cu, torch 2.11: the result begins as empty_like(input) and is resized, which keeps a
/// storage that is large enough: folded images lie in one of their columns' size.
Tensor resized_copy(const Tensor& x, const Shape& shape, const Operator& op) {
  Tape& tape = x.tape();
  Tensor result = tape.empty(x.shape(), x.dtype(), op);
  Tensor rows;
  {
    const NoGrad no_grad(tape.modes);
    rows = contiguous(x);
  }
  Tensor larger;
  if (shape.elements() > x.elements()) larger = tape.empty(shape, x.dtype(), op);
  Tensor made = larger.defined() ? std::move(larger) : tape.alias(result, shape, contiguous_strides(shape), false);
  result.reset();
  tape.kernels.add(op, OperatorClass::kMovement, x.dtype(), 0, static_cast<double>(x.bytes() + made.bytes()),
                   KernelKind::kStrided, static_cast<double>(made.elements()));
  return made;
}

template <const AtenOperator& op>
void resize_back(BackwardCall& call) {
  call.set(0, resized_copy(call.gradient(), call.payload<InputShape>().shape, op));
}

template <const AtenOperator& op, const AtenOperator& backward_op>
Tensor resized(const Tensor& x, const Shape& shape) {
  const Tensor* inputs[] = {&x};
  Node* node = x.tape().autograd.record(op, resize_back<backward_op>, inputs, 1);
  if (node != nullptr) node->payload.set(InputShape{x.shape()});
  Tensor result = resized_copy(x, shape, op);
  x.tape().autograd.set_history(node, result);
  return result;
}

struct WindowsPayload {
  Shape input;
  std::int64_t places = 0;  // of the dimension, where windows overlap
};

/// native/cuda/UnfoldBackwardKernel.cu: zeros, to which the gradients of all windows are added. Where windows overlap
/// the places of the dimension are counted (UnfoldBackward.h, _make_unfold_backward_iter_over_grad_in).
void windows_backward(BackwardCall& call) {
  const auto& [input, places] = call.payload<WindowsPayload>();
  Tensor result = call.tape.empty(input, call.gradient().dtype(), aten::kUnfoldBackward);
  if (places > 0) call.tape.memory.scratch(8 * places, aten::kArange);
  call.tape.kernels.add(aten::kUnfoldBackward, OperatorClass::kMovement, result.dtype(), 0,
                        static_cast<double>(result.bytes() + call.gradient().bytes()), KernelKind::kStrided,
                        static_cast<double>(result.elements()));
  call.set(0, std::move(result));
}

}  // namespace

Tensor windows(const Tensor& x, int dim, std::int64_t size, std::int64_t step) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kUnfold, windows_backward, inputs, 1);
  if (node != nullptr) node->payload.set(WindowsPayload{x.shape(), step < size ? x.size(dim) : 0});
  Shape shape = x.shape(), strides = x.strides();
  shape[dim] = (x.size(dim) - size) / step + 1;
  strides[dim] *= step;
  shape.dims[static_cast<std::size_t>(shape.rank++)] = size;
  strides.dims[static_cast<std::size_t>(strides.rank++)] = x.strides()[dim];
  Tensor result = tape.alias(x, shape, strides, true);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor unfold(const Tensor& x, const SpatialSizes& window, const ConvolutionOptions& options) {
  std::int64_t places = 1, pixels = 1;
  for (int i = 0; i < 2; ++i) {
    const std::int64_t reach = options.dilation[i] * (window[i] - 1) + 1;
    places *= (x.size(i + 2) + 2 * options.padding[i] - reach) / options.stride[i] + 1;
    pixels *= window[i];
  }
  return resized<aten::kIm2col, aten::kCol2im>(x, {x.size(0), x.size(1) * pixels, places});
}

Tensor fold(const Tensor& x, const Shape& images) { return resized<aten::kCol2im, aten::kIm2col>(x, images); }

}  // namespace memcalc
