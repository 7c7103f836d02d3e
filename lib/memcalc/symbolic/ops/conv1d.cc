#include "memcalc/symbolic/ops/conv1d.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/conv.h"
#include "memcalc/symbolic/ops/conv_workspace.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

struct ConvolutionPayload {
  std::int64_t stride = 1, padding = 0;
};

/// As cuDNN sees it: an image of one row.
ConvolutionShape shape_of(const Shape& x, const Shape& weight, const Shape& result, std::int64_t stride,
                          std::int64_t padding) {
  return {.batch = x[0],
          .in_channels = x[1],
          .height = 1,
          .width = x[2],
          .out_channels = result[1],
          .out_height = 1,
          .out_width = result[2],
          .groups = x[1] / weight[1],
          .kernel_width = weight[2],
          .stride = stride,
          .padding = padding,
          .spatial_rank = 1};
}

void run_pass(Tape& tape, const Operator& op, const ConvolutionShape& s, ConvolutionPass pass, DType dtype) {
  tape.memory.scratch(sequence_convolution_workspace(s, pass, dtype, tape.kernels.convolutions_in_tf32), op,
                      Category::kWorkspaces);
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double elements = real(s.batch * s.in_channels) * real(s.width) +
                          real(s.batch * s.out_channels) * real(s.out_width) +
                          real(s.out_channels) * real(s.in_channels / s.groups * s.kernel_width);
  tape.kernels.convolution(op, dtype, KernelKind::kConvolution,
                           {.groups = s.groups,
                            .pixels = s.batch * s.out_width,
                            .channels = s.out_channels / s.groups,
                            .depth = s.in_channels / s.groups * s.kernel_width,
                            .group_channels = real(s.in_channels / s.groups),
                            .backward = pass != ConvolutionPass::kForward,
                            .weight_gradient = pass == ConvolutionPass::kWeightGradient,
                            .dimensions = 1},
                           elements * real(size_of(dtype)));
}

void convolution_backward(BackwardCall& call) {  // inputs: x, weight, bias; saved: x, weight
  Tape& tape = call.tape;
  const Tensor& x = call.saved(0);
  const Tensor& weight = call.saved(1);
  const auto& [stride, padding] = call.payload<ConvolutionPayload>();
  const ConvolutionShape shape = shape_of(x.shape(), weight.shape(), call.gradient().shape(), stride, padding);
  const Tensor row_major = call.needs(1) ? contiguous(x) : x;
  {
    const Tensor dy = contiguous(call.gradient());
    if (call.needs(0)) {
      call.set(0, tape.empty(x.shape(), x.dtype(), aten::kConvolutionBackward));
      run_pass(tape, aten::kConvolutionBackward, shape, ConvolutionPass::kInputGradient, x.dtype());
    }
    if (call.needs(1)) {
      call.set(1, tape.empty(weight.shape(), weight.dtype(), aten::kConvolutionBackward));
      run_pass(tape, aten::kConvolutionBackward, shape, ConvolutionPass::kWeightGradient, x.dtype());
    }
  }
  if (call.needs(2)) {
    Tensor sum = sum_to(call.gradient(), {1, weight.size(0), 1});
    call.set(2, tape.alias(sum, {weight.size(0)}, {1}, false));
  }
}

}  // namespace

Tensor conv1d(Arg x, const Tensor& weight, const Tensor& bias, std::int64_t stride, std::int64_t padding,
              std::int64_t dilation) {
  const std::int64_t groups = x->size(1) / weight.size(1);
  if (dilation != 1 || (groups > 1 && weight.size(1) == 1)) {  // dilated, or of each channel alone
    return convolution(std::move(x), weight, bias,
                       {.stride = stride, .padding = padding, .groups = groups, .dilation = dilation});
  }
  const OperatorCall call(x);
  Tensor vector;
  if (bias.defined()) vector = autocast(aten::kConvolution, bias);
  const Tensor filter = autocast(aten::kConvolution, weight);
  const Tensor input = autocast(aten::kConvolution, *x);
  Tape& tape = input.tape();
  const Tensor* inputs[] = {&input, &filter, &vector};
  Node* node = tape.autograd.record(aten::kConvolution, convolution_backward, inputs, bias.defined() ? 3 : 2);
  if (node != nullptr) {
    node->payload.set(ConvolutionPayload{.stride = stride, .padding = padding});
    tape.autograd.save(*node, input);
    tape.autograd.save(*node, filter);
  }
  const std::int64_t length = window_count(input.size(2), filter.size(2), stride, padding);
  Tensor row_major;
  {
    const NoGrad no_grad(tape.modes);
    row_major = contiguous(input);
  }
  Tensor result = tape.empty({input.size(0), filter.size(0), length}, input.dtype(), aten::kCudnnConvolution);
  const ConvolutionShape shape = shape_of(input.shape(), filter.shape(), result.shape(), stride, padding);
  run_pass(tape, aten::kCudnnConvolution, shape, ConvolutionPass::kForward, input.dtype());
  if (bias.defined()) add_channel_bias(result, vector);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
