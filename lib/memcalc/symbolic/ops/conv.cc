#include "memcalc/symbolic/ops/conv.h"

#include <algorithm>

#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/conv_workspace.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kConvolution{"aten::cudnn_convolution"}, kDepthwise{"aten::_conv_depthwise2d"};
constexpr Operator kConvolutionBackward{"ConvolutionBackward0"}, kConvolutionBackwardOp{"aten::convolution_backward"};
constexpr Operator kToCopy{"aten::_to_copy"}, kContiguous{"aten::contiguous"};

constexpr int kStride = 0, kPadding = 1, kGroups = 2;  // node attributes

/// torch.channels_last strides, as an image that went through permute has them.
Shape channels_last_strides(const Shape& shape) {
  return {shape[1] * shape[2] * shape[3], 1, shape[3] * shape[1], shape[1]};
}

/// Tensor::suggest_memory_format: channels last where strides say so and not row-major too.
bool is_channels_last(const Tensor& x) {
  if (x.is_contiguous()) return false;
  const Shape& shape = x.shape();
  const Shape& strides = x.strides();
  if (strides[1] == 0) return false;
  // c10/core/MemoryFormat.h, is_channels_last_strides_2d
  std::int64_t least = 0;
  for (const int dim : {1, 3, 2, 0}) {
    if (shape[dim] == 0 || strides[dim] < least) return false;
    if (dim == 0 && least == strides[1]) return false;
    least = strides[dim] * std::max<std::int64_t>(shape[dim], 1);
  }
  return true;
}

ConvolutionShape shape_of(const Shape& x, const Shape& weight, const Shape& y, std::int64_t stride,
                          std::int64_t padding, std::int64_t groups) {
  return {.batch = x[0],
          .in_channels = x[1],
          .height = x[2],
          .width = x[3],
          .out_channels = y[1],
          .out_height = y[2],
          .out_width = y[3],
          .groups = groups,
          .kernel_height = weight[2],
          .kernel_width = weight[3],
          .stride = stride,
          .padding = padding};
}

/// One GEMM a group: rows are pixels.
void count_kernel(Tape& tape, const Operator& op, DType dtype, const ConvolutionShape& s, bool depthwise,
                  bool backward) {
  const auto pixels = [](std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return static_cast<double>(a * b) * static_cast<double>(c * d);
  };
  // Not the unfolded matrix: each image is read once.
  const double bytes =
      static_cast<double>(size_of(dtype)) *
      (pixels(s.batch, s.in_channels, s.height, s.width) + pixels(s.batch, s.out_channels, s.out_height, s.out_width) +
       pixels(s.out_channels, s.in_channels / s.groups, s.kernel_height, s.kernel_width));
  tape.kernels.convolution(op, dtype, depthwise ? KernelKind::kDepthwiseConvolution : KernelKind::kConvolution,
                           {.groups = s.groups,
                            .pixels = s.batch * s.out_height * s.out_width,
                            .channels = s.out_channels / s.groups,
                            .depth = s.in_channels / s.groups * s.kernel_height * s.kernel_width,
                            .group_channels = static_cast<double>(s.in_channels / s.groups),
                            .backward = backward},
                           bytes);
}

/// In the layout that cuDNN computes in; itself where it has it.
Tensor in_layout(const Tensor& x, bool channels_last, const Operator& op) {
  const Shape strides = channels_last ? channels_last_strides(x.shape()) : contiguous_strides(x.shape());
  if (channels_last ? is_channels_last(x) || x.strides() == strides : x.is_contiguous()) return x;
  // Dimensions of size 1 may carry any stride.
  bool same = true;
  for (int i = 0; i < 4; ++i) same = same && (x.size(i) == 1 || x.strides()[i] == strides[i]);
  if (same) return x;
  return x.tape().empty_strided(x.shape(), strides, x.dtype(), op);
}

void depthwise_backward(BackwardCall& call, const Tensor& x, const Tensor& weight, const ConvolutionShape& shape) {
  const Tensor& gradient = call.gradient();
  if (call.needs(1)) {
    call.set(1, call.tape.empty(weight.shape(), weight.dtype(), kConvolutionBackwardOp));
    count_kernel(call.tape, kConvolutionBackwardOp, gradient.dtype(), shape, true, true);
  }
  if (call.needs(0)) {
    call.set(0, call.tape.empty(x.shape(), x.dtype(), kConvolutionBackwardOp));
    count_kernel(call.tape, kConvolutionBackwardOp, gradient.dtype(), shape, true, true);
  }
}

void cudnn_backward(BackwardCall& call, const Tensor& x, const Tensor& weight, const ConvolutionShape& shape) {
  Tape& tape = call.tape;
  const DType dtype = x.dtype();
  const bool channels_last = is_channels_last(x) || is_channels_last(weight);
  // Convolution.cpp converts to channels last once; cudnn/ConvShared.cpp makes a view contiguous in each of its calls.
  const Tensor dy = channels_last ? in_layout(call.gradient(), true, kToCopy) : call.gradient();
  const auto pass = [&](int input, const Tensor& like, ConvolutionPass kind) {
    if (!call.needs(input)) return;
    Tensor rows;
    if (kind == ConvolutionPass::kWeightGradient) rows = in_layout(dy, channels_last, kContiguous);
    Tensor result = tape.empty_strided(
        like.shape(), channels_last ? channels_last_strides(like.shape()) : contiguous_strides(like.shape()), dtype,
        kConvolutionBackwardOp);
    if (kind == ConvolutionPass::kInputGradient) rows = in_layout(dy, channels_last, kContiguous);
    const Tensor other = in_layout(kind == ConvolutionPass::kInputGradient ? weight : x, channels_last, kContiguous);
    tape.memory.scratch(convolution_workspace(shape, kind, dtype, tape.kernels.allow_tf32), kConvolutionBackwardOp,
                        Category::kWorkspaces);
    count_kernel(tape, kConvolutionBackwardOp, dtype, shape, false, true);
    call.set(input, std::move(result));
  };
  pass(0, x, ConvolutionPass::kInputGradient);
  pass(1, weight, ConvolutionPass::kWeightGradient);
}

void convolution_backward(BackwardCall& call) {  // inputs: x, weight, bias; saved: x, weight
  const Tensor& x = call.saved(0);
  const Tensor& weight = call.saved(1);
  const Tensor& gradient = call.gradient();
  const auto& attributes = call.node.attributes;
  ConvolutionShape shape = shape_of(x.shape(), weight.shape(), gradient.shape(), attributes[kStride],
                                    attributes[kPadding], attributes[kGroups]);
  shape.channels_last = is_channels_last(x) || is_channels_last(weight);
  if (uses_depthwise_kernel(shape, x.dtype())) {
    depthwise_backward(call, x, weight, shape);
  } else {
    cudnn_backward(call, x, weight, shape);
  }
  if (call.needs(2)) {
    Tensor sum = sum_to(gradient, {1, weight.size(0), 1, 1});
    call.set(2, call.tape.alias(sum, {weight.size(0)}, {1}, false));
  }
}

}  // namespace

Tensor conv2d(Arg x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& options) {
  const OperatorCall call(x);
  Tensor vector;
  if (bias.defined()) vector = autocast_operand(bias);
  const Tensor filter = autocast_operand(weight);
  const Tensor image = autocast_operand(*x);
  Tape& tape = image.tape();
  const Tensor* inputs[] = {&image, &filter, &vector};
  Node* node = tape.autograd.record(kConvolutionBackward, convolution_backward, inputs, bias.defined() ? 3 : 2);
  if (node != nullptr) {
    node->attributes[kStride] = options.stride;
    node->attributes[kPadding] = options.padding;
    node->attributes[kGroups] = options.groups;
    tape.autograd.save(*node, image);
    tape.autograd.save(*node, filter);
  }
  const auto out_size = [&](int dim) {
    return window_count(image.size(dim), filter.size(dim), options.stride, options.padding);
  };
  const Shape out{image.size(0), filter.size(0), out_size(2), out_size(3)};
  if (out[2] < 1 || out[3] < 1) throw refusal(rules::kImageLargeEnough, {"convolutions"});
  ConvolutionShape shape =
      shape_of(image.shape(), filter.shape(), out, options.stride, options.padding, options.groups);
  shape.channels_last = is_channels_last(image) || is_channels_last(filter);
  Tensor result;
  if (uses_depthwise_kernel(shape, image.dtype())) {
    result = tape.empty(out, image.dtype(), kDepthwise);
    count_kernel(tape, kDepthwise, image.dtype(), shape, true, false);
  } else {
    const bool channels_last = shape.channels_last;
    result = tape.empty_strided(out, channels_last ? channels_last_strides(out) : contiguous_strides(out),
                                image.dtype(), kConvolution);
    const Tensor filter_copy = in_layout(filter, channels_last, kContiguous);
    tape.memory.scratch(convolution_workspace(shape, ConvolutionPass::kForward, image.dtype(), tape.kernels.allow_tf32),
                        kConvolution, Category::kWorkspaces);
    count_kernel(tape, kConvolution, image.dtype(), shape, false, false);
  }
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
