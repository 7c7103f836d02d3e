// MIRRORS(torch, "cuda/DilatedMaxPool2d.cu", "2.11.0")
#include "memcalc/symbolic/ops/pool.h"

#include <utility>

#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/channels_last.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// cuda/DilatedMaxPool2d.cu, AveragePool2d.cu: the input's layout; operands that have another are copied to it.
template <const AtenOperator& op>
void pool_backward(BackwardCall& call) {  // saved: self, ...
  const Tensor& self = call.saved(0);
  const bool channels_last = is_channels_last(self);
  Tensor dx = empty_in_layout(call.tape, self.shape(), self.dtype(), channels_last, op);
  const Tensor input = in_layout(self, channels_last, aten::kContiguous);
  const Tensor dy = in_layout(call.gradient(), channels_last, aten::kContiguous);
  call.tape.kernels.add(op, OperatorClass::kElementwise, self.dtype(), static_cast<double>(self.elements()),
                        static_cast<double>(self.bytes() + call.gradient().bytes()), KernelKind::kImage,
                        static_cast<double>(self.elements()));
  call.set(0, std::move(dx));
}

/// `shape`: of the result.
Tensor pool(const AtenOperator& op, BackwardFunction backward, const Tensor& x, const Shape& shape, bool with_indices) {
  for (int i = 2; i < shape.rank; ++i) {
    if (shape[i] < 1) throw refusal(rules::kImageLargeEnough, {"pooling"});
  }
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(op, backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, x);
  const bool channels_last = is_channels_last(x);
  Tensor result = empty_in_layout(tape, shape, x.dtype(), channels_last, op);
  Tensor indices;
  if (with_indices) indices = empty_in_layout(tape, shape, DType::kInt64, channels_last, op);
  const Tensor input = in_layout(x, channels_last, aten::kContiguous);
  tape.kernels.add(op, OperatorClass::kElementwise, x.dtype(), static_cast<double>(x.elements()),
                   static_cast<double>(x.bytes() + result.bytes()), KernelKind::kImage,
                   static_cast<double>(result.elements()));
  tape.autograd.set_history(node, result);
  if (node != nullptr && with_indices) tape.autograd.save(*node, indices);
  return result;
}

/// native/Pool.h, pooling_output_shape: with ceil_mode a last window may reach beyond, if it begins inside.
Shape pooled_shape(const Tensor& x, const PoolOptions& options) {
  Shape shape = x.shape();
  for (int i = 2; i < shape.rank; ++i) {
    const std::int64_t reach = options.dilation[i - 2] * (options.kernel[i - 2] - 1) + 1;
    const std::int64_t stride = options.stride[i - 2], padding = options.padding[i - 2];
    std::int64_t count = window_count(x.size(i), reach, stride, padding);
    if (options.ceil_mode && count > 0) {
      const std::int64_t rest = x.size(i) + 2 * padding - reach;
      const bool more = rest % stride != 0 && (rest / stride + 1) * stride < x.size(i) + padding;
      count += more ? 1 : 0;
    }
    shape[i] = count;
  }
  return shape;
}

}  // namespace

Tensor max_pool(Arg x, const PoolOptions& options) {
  const OperatorCall call(x);
  return pool(aten::kMaxPool2dWithIndices, pool_backward<aten::kMaxPool2dWithIndicesBackward>, *x,
              pooled_shape(*x, options), true);
}

Tensor avg_pool(Arg x, const PoolOptions& options) {
  const OperatorCall call(x);
  return pool(aten::kAvgPool2d, pool_backward<aten::kAvgPool2dBackward>, *x, pooled_shape(*x, options), false);
}

Tensor max_pool2d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return max_pool(std::move(x), {.kernel = kernel, .stride = stride, .padding = padding});
}

Tensor max_pool1d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return max_pool(std::move(x), {.kernel = kernel, .stride = stride, .padding = padding});
}

Tensor avg_pool2d(Arg x, std::int64_t kernel) { return avg_pool2d(std::move(x), kernel, kernel, 0); }

Tensor avg_pool2d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return avg_pool(std::move(x), {.kernel = kernel, .stride = stride, .padding = padding});
}

Tensor avg_pool1d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return avg_pool(std::move(x), {.kernel = kernel, .stride = stride, .padding = padding});
}

Tensor adaptive_avg_pool2d(Arg x, std::int64_t size) {
  const OperatorCall call(x);
  return adaptive_avg_pool(*x, {x->size(0), x->size(1), size, size});
}

Tensor adaptive_avg_pool1d(Arg x, std::int64_t size) {
  const OperatorCall call(x);
  if (size == 1) return squeeze(mean_pixels(unsqueeze(*x, 2)), 2);
  return adaptive_avg_pool(*x, {x->size(0), x->size(1), size});
}

Tensor adaptive_avg_pool(Arg x, const Shape& shape) {
  const OperatorCall call(x);
  bool one_pixel = shape.rank == 4;
  for (int i = 2; i < shape.rank; ++i) one_pixel = one_pixel && shape[i] == 1;
  if (one_pixel) return mean_pixels(*x);
  return pool(aten::kAdaptiveAvgPool2d, pool_backward<aten::kAdaptiveAvgPool2dBackward>, *x, shape, false);
}

Tensor adaptive_max_pool(Arg x, const Shape& shape) {
  const OperatorCall call(x);
  return pool(aten::kAdaptiveMaxPool2d, pool_backward<aten::kAdaptiveMaxPool2dBackward>, *x, shape, true);
}

}  // namespace memcalc
