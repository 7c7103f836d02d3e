#include "memcalc/symbolic/ops/pool.h"

#include <utility>

#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kMaxPool{"aten::max_pool2d_with_indices"}, kMaxPoolBackward{"MaxPool2DWithIndicesBackward0"};
constexpr Operator kMaxPoolBackwardOp{"aten::max_pool2d_with_indices_backward"};
constexpr Operator kAvgPool{"aten::avg_pool2d"}, kAvgPoolBackward{"AvgPool2DBackward0"};
constexpr Operator kAvgPoolBackwardOp{"aten::avg_pool2d_backward"};
constexpr Operator kAdaptive{"aten::_adaptive_avg_pool2d"}, kAdaptiveBackward{"AdaptiveAvgPool2DBackward0"};
constexpr Operator kAdaptiveBackwardOp{"aten::_adaptive_avg_pool2d_backward"};

template <const Operator& op>
void pool_backward(BackwardCall& call) {  // saved: self, ...
  const Tensor& self = call.saved(0);
  Tensor dx = call.tape.empty_strided(self.shape(), like_strides(self.shape(), self.strides()), self.dtype(), op);
  call.tape.kernels.add(op, OperatorClass::kElementwise, self.dtype(), static_cast<double>(self.elements()),
                        static_cast<double>(self.bytes() + call.gradient().bytes()), KernelKind::kImage,
                        static_cast<double>(self.elements()));
  call.set(0, std::move(dx));
}

/// `shape`: of the result.
Tensor pool(const Operator& op, const Operator& node_name, BackwardFunction backward, const Tensor& x,
            const Shape& shape, bool with_indices) {
  for (int i = 2; i < shape.rank; ++i) {
    if (shape[i] < 1) throw refusal(rules::kImageLargeEnough, {"pooling"});
  }
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(node_name, backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, x);
  Tensor result = tape.empty(shape, x.dtype(), op);
  Tensor indices;
  if (with_indices) indices = tape.empty(shape, DType::kInt64, op);
  tape.kernels.add(op, OperatorClass::kElementwise, x.dtype(), static_cast<double>(x.elements()),
                   static_cast<double>(x.bytes() + result.bytes()), KernelKind::kImage,
                   static_cast<double>(x.elements()));
  tape.autograd.set_history(node, result);
  if (node != nullptr && with_indices) tape.autograd.save(*node, indices);
  return result;
}

/// Windows of one size along every dimension behind the channels.
Shape pooled_shape(const Tensor& x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  Shape shape = x.shape();
  for (int i = 2; i < shape.rank; ++i) shape[i] = window_count(shape[i], kernel, stride, padding);
  return shape;
}

Tensor max_pool(const Tensor& x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return pool(kMaxPool, kMaxPoolBackward, pool_backward<kMaxPoolBackwardOp>, x,
              pooled_shape(x, kernel, stride, padding), true);
}

Tensor avg_pool(const Tensor& x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return pool(kAvgPool, kAvgPoolBackward, pool_backward<kAvgPoolBackwardOp>, x,
              pooled_shape(x, kernel, stride, padding), false);
}

Tensor adaptive_pool(const Tensor& x, const Shape& shape) {
  return pool(kAdaptive, kAdaptiveBackward, pool_backward<kAdaptiveBackwardOp>, x, shape, false);
}

}  // namespace

Tensor max_pool2d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  const OperatorCall call(x);
  return max_pool(*x, kernel, stride, padding);
}

Tensor max_pool1d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  const OperatorCall call(x);
  return max_pool(*x, kernel, stride, padding);
}

Tensor avg_pool2d(Arg x, std::int64_t kernel) { return avg_pool2d(std::move(x), kernel, kernel, 0); }

Tensor avg_pool2d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  const OperatorCall call(x);
  return avg_pool(*x, kernel, stride, padding);
}

Tensor avg_pool1d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  const OperatorCall call(x);
  return avg_pool(*x, kernel, stride, padding);
}

Tensor adaptive_avg_pool2d(Arg x, std::int64_t size) {
  const OperatorCall call(x);
  if (size == 1) return mean_pixels(*x);
  return adaptive_pool(*x, {x->size(0), x->size(1), size, size});
}

Tensor adaptive_avg_pool1d(Arg x, std::int64_t size) {
  const OperatorCall call(x);
  if (size == 1) return squeeze(mean_pixels(unsqueeze(*x, 2)), 2);
  return adaptive_pool(*x, {x->size(0), x->size(1), size});
}

}  // namespace memcalc
