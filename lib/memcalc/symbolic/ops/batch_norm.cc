// MIRRORS(torch, "cuda/Normalization.cuh", "2.11.0")
// MIRRORS(torch, "native/Normalization.cpp", "2.11.0")
#include "memcalc/symbolic/ops/batch_norm.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/channels_last.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// cuda/Normalization.cuh, batch_norm_use_channels_last_kernels: channels last without gaps, or contiguous with the
/// channels innermost, as [N, C] is.
bool has_channels_innermost(const Tensor& x) {
  if (x.is_contiguous()) return x.strides()[1] == 1;
  return is_channels_last(x) && is_dense(x.shape(), x.strides());
}

/// A block goes over a channel.
work::Rows channels_of(const Tensor& x, bool backward) {
  const std::int64_t channels = x.rank() > 1 ? x.size(1) : 1;
  return {.count = channels,
          .width = channels > 0 ? x.elements() / channels : 0,
          .softmax = false,
          .backward = backward,
          .images = has_channels_innermost(x) ? 0 : x.size(0)};
}

std::int64_t last_power_of_2(std::int64_t n) {
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
}

/// Normalization.cuh, flexible_launch_configs: with many rows several thread blocks share a channel, and meet in a
/// staging buffer of `values` numbers a channel and block.
void stage_rows(const Tensor& x, std::int64_t values, const Operator& op) {
  constexpr std::int64_t kTileWidth = 32, kMostThreads = 512, kElementsPerThread = 16, kMostBlocks = 128;
  const std::int64_t channels = x.size(1);
  const std::int64_t rows = x.elements() / channels;
  std::int64_t width = std::min(last_power_of_2(channels), kTileWidth);
  const std::int64_t height = std::min(last_power_of_2(ceil_div(rows, kElementsPerThread)), kMostThreads / width);
  if (width * height != kMostThreads) width = std::min(last_power_of_2(channels), kMostThreads / height);
  const std::int64_t blocks = std::min(ceil_div(rows, height * kElementsPerThread), kMostBlocks);
  if (blocks < 8) return;
  Tensor staging = x.tape().empty({values * channels * blocks}, DType::kFloat32, op);
  Tensor semaphores = x.tape().empty({ceil_div(channels, width)}, DType::kInt32, op);
  drop(semaphores, staging);
}

/// Most kernels ask for the same: the input's gradient, then those of weight and bias. With the channels innermost two
/// kernels share the work, which pass on two sums.
/// inputs: x, weight and bias where they are; saved: x, weight, mean, invstd.
template <const AtenOperator& op>
void batch_norm_backward(BackwardCall& call) {
  const Tensor& x = call.saved(0);
  const bool has_weight = call.node.edge_count > 1;
  Tape& tape = call.tape;
  const auto like_input = [&] {
    return tape.empty_strided(x.shape(), like_strides(x.shape(), x.strides()), x.dtype(), op);
  };
  const bool innermost = &op == &aten::kNativeBatchNormBackward && has_channels_innermost(x);
  // derivatives.yaml, cudnn_batch_norm: grad.contiguous(input.suggest_memory_format())
  Tensor dy;
  if (&op == &aten::kCudnnBatchNormBackward && x.is_contiguous() && !call.gradient().is_contiguous()) {
    dy = contiguous(call.gradient());
  }
  Tensor dx, sum_dy, sum_dy_x;
  if (innermost) {
    sum_dy = tape.empty({x.size(1)}, DType::kFloat32, op);
    sum_dy_x = tape.empty({x.size(1)}, DType::kFloat32, op);
  } else {
    dx = like_input();
  }
  if (has_weight) {
    const Tensor& weight = call.saved(1);
    call.set(1, tape.empty(weight.shape(), weight.dtype(), op));
    if (call.node.edge_count > 2) call.set(2, tape.empty(weight.shape(), weight.dtype(), op));
  }
  if (innermost) {
    stage_rows(x, 2, op);
    dx = like_input();
  }
  drop(sum_dy_x, sum_dy);
  tape.kernels.add(op, OperatorClass::kNormalization, x.dtype(), 14.0 * static_cast<double>(x.elements()),
                   5.0 * static_cast<double>(x.bytes()), KernelKind::kImage, static_cast<double>(x.elements()));
  tape.kernels.describe(channels_of(x, true));
  if (call.needs(0)) call.set(0, std::move(dx));
}

/// native/Normalization.cpp, _select_batch_norm_backend: cuDNN takes images and sequences in float32, and in float16
/// with float32 weights, where both a weight and a bias are given, of fewer elements than a 32-bit number counts.
bool uses_cudnn(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  if (!weight.defined() || !bias.defined() || weight.dtype() != DType::kFloat32 || x.rank() < 3) return false;
  if (x.elements() >= std::numeric_limits<std::int32_t>::max()) return false;
  return x.dtype() == DType::kFloat32 || x.dtype() == DType::kFloat16;
}

}  // namespace

Tensor batch_norm(Arg given, const Tensor& weight, const Tensor& bias) {
  const OperatorCall call(given);
  Tape& tape = given->tape();
  if (tape.modes.training && given->elements() == given->size(1)) throw refusal(rules::kBatchNormOfSeveral);
  const bool cudnn = uses_cudnn(*given, weight, bias);
  // Normalization.cpp, _batch_norm_impl_index: input.contiguous(input.suggest_memory_format()), which is kept
  const bool copies = cudnn && !given->is_contiguous() && !is_channels_last(*given);
  const Tensor copy = copies ? contiguous(*given) : Tensor();
  const Tensor* x = copies ? &copy : &*given;
  const Operator& op = cudnn ? aten::kCudnnBatchNorm : aten::kNativeBatchNorm;
  const Tensor* inputs[] = {&*x, &weight, &bias};
  Node* node = tape.autograd.record(
      cudnn ? aten::kCudnnBatchNorm : aten::kNativeBatchNorm,
      cudnn ? batch_norm_backward<aten::kCudnnBatchNormBackward> : batch_norm_backward<aten::kNativeBatchNormBackward>,
      inputs,
      bias.defined()     ? 3
      : weight.defined() ? 2
                         : 1);
  if (node != nullptr) {
    tape.autograd.save(*node, *x);
    if (weight.defined()) tape.autograd.save(*node, weight);
  }
  Tensor result = tape.empty_strided(x->shape(), like_strides(x->shape(), x->strides()), x->dtype(), op);
  Tensor mean, invstd;
  if (tape.modes.training) {  // else the running statistics serve
    mean = tape.empty({x->size(1)}, DType::kFloat32, op);
    invstd = tape.empty({x->size(1)}, DType::kFloat32, op);
  }
  if (tape.modes.training && !cudnn && has_channels_innermost(*x)) stage_rows(*x, 4, op);
  tape.kernels.add(op, OperatorClass::kNormalization, x->dtype(), 8.0 * static_cast<double>(x->elements()),
                   3.0 * static_cast<double>(x->bytes()), KernelKind::kImage, static_cast<double>(x->elements()));
  tape.kernels.describe(channels_of(*x, false));
  tape.autograd.set_history(node, result);
  if (node != nullptr && mean.defined()) {
    tape.autograd.save(*node, mean);
    tape.autograd.save(*node, invstd);
  }
  drop(invstd, mean);
  return result;
}

// native/Normalization.cpp, instance_norm: the samples become channels of one sample, with a copy of the weights each.
Tensor instance_norm(Arg x, const Tensor& weight, const Tensor& bias) {
  const OperatorCall call(x);
  const std::int64_t samples = x->size(0);
  Tensor weights, biases;
  if (weight.defined()) weights = repeat(weight, {samples});
  if (bias.defined()) biases = repeat(bias, {samples});
  Shape shape = x->shape();
  shape[1] *= samples;
  shape[0] = 1;
  const Tensor joined = view(contiguous(*x), shape);
  return view(batch_norm(joined, weights, biases), x->shape());
}

}  // namespace memcalc
