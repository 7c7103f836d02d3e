#include "memcalc/symbolic/ops/pool.h"

#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/reduce.h"
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
  call.tape.kernel(op, OperatorClass::kElementwise, self.dtype(), static_cast<double>(self.elements()),
                   static_cast<double>(self.bytes() + call.gradient().bytes()));
  call.set(0, std::move(dx));
}

Tensor pool(const Operator& op, const Operator& node_name, BackwardFunction backward, const Tensor& x,
            std::int64_t height, std::int64_t width, bool with_indices) {
  if (height < 1 || width < 1) throw Error(ErrorCode::kUsage, "the image is too small for this model's pooling");
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.record(node_name, backward, inputs, 1);
  if (node != nullptr) tape.save(*node, x);
  const Shape shape{x.size(0), x.size(1), height, width};
  Tensor result = tape.empty(shape, x.dtype(), op);
  Tensor indices;
  if (with_indices) indices = tape.empty(shape, DType::kInt64, op);
  tape.kernel(op, OperatorClass::kElementwise, x.dtype(), static_cast<double>(x.elements()),
              static_cast<double>(x.bytes() + result.bytes()));
  tape.set_history(node, result);
  if (node != nullptr && with_indices) tape.save(*node, indices);
  return result;
}

}  // namespace

Tensor max_pool2d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  const OperatorCall call(x);
  const auto out = [&](int dim) { return (x->size(dim) + 2 * padding - kernel) / stride + 1; };
  return pool(kMaxPool, kMaxPoolBackward, pool_backward<kMaxPoolBackwardOp>, *x, out(2), out(3), true);
}

Tensor avg_pool2d(Arg x, std::int64_t kernel) {
  const OperatorCall call(x);
  return pool(kAvgPool, kAvgPoolBackward, pool_backward<kAvgPoolBackwardOp>, *x, x->size(2) / kernel,
              x->size(3) / kernel, false);
}

Tensor adaptive_avg_pool2d(Arg x, std::int64_t size) {
  const OperatorCall call(x);
  if (size == 1) return mean_pixels(*x);
  return pool(kAdaptive, kAdaptiveBackward, pool_backward<kAdaptiveBackwardOp>, *x, size, size, false);
}

}  // namespace memcalc
