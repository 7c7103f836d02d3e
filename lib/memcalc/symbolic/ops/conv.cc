// MIRRORS(torch, "Convolution.cpp", "2.11.0")
// MIRRORS(torch, "cuda/DepthwiseConv2d.cu", "2.11.0")
#include "memcalc/symbolic/ops/conv.h"

#include <algorithm>

#include "memcalc/spec/built_rules.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/channels_last.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/conv_workspace.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/symbolic/within_call.h"

namespace memcalc {

namespace {

int spatial_rank(const Shape& shape) { return shape.rank - 2; }

/// What the engine sees of [N, C, …]: depth and height of what has less are 1 (ConvParams::view1d_as_2d of a sequence).
struct Extents {
  std::int64_t depth = 1, height = 1, width = 1;
};

Extents extents(const Shape& shape) {
  return {.depth = shape.rank > 4 ? shape[-3] : 1, .height = shape.rank > 3 ? shape[-2] : 1, .width = shape[-1]};
}

/// `image` and `result`: of the convolution itself, which a transposed one runs from its result to its operand.
ConvolutionShape shape_of(const Shape& image, const Shape& weight, const Shape& result,
                          const ConvolutionOptions& options) {
  const Extents in = extents(image), out = extents(result), kernel = extents(weight);
  const int rank = spatial_rank(image);
  bool same = rank == 2, same_steps = rank == 2;
  std::int64_t dilation = 1;
  for (int i = 0; i < rank; ++i) {
    same_steps = same_steps && options.stride[i] == options.stride[0] && options.dilation[i] == options.dilation[0];
    same = same && same_steps && options.padding[i] == options.padding[0] && options.dilation[i] == 1;
    dilation = std::max(dilation, options.dilation[i]);
  }
  return {.batch = image[0],
          .in_channels = image[1],
          .height = in.height,
          .width = in.width,
          .out_channels = result[1],
          .out_height = out.height,
          .out_width = out.width,
          .groups = options.groups,
          .kernel_height = kernel.height,
          .kernel_width = kernel.width,
          .stride = options.stride[0],
          .padding = options.padding[0],
          .depth = in.depth,
          .out_depth = out.depth,
          .kernel_depth = kernel.depth,
          .spatial_rank = rank,
          .dilation = dilation,
          .padding_across = rank == 2 ? options.padding[1] : ConvolutionShape::kAsPadding,
          .transposed = options.transposed,
          .same_steps = same_steps,
          .same_everywhere = same};
}

/// native/ConvUtils.h, conv_output_size and conv_input_size.
Shape result_shape(const Shape& x, const Shape& weight, const ConvolutionOptions& options) {
  Shape out = x;
  out[1] = options.transposed ? weight[1] * options.groups : weight[0];
  for (int i = 0; i < spatial_rank(x); ++i) {
    const std::int64_t kernel = options.dilation[i] * (weight[i + 2] - 1) + 1;
    out[i + 2] = options.transposed
                     ? (x[i + 2] - 1) * options.stride[i] - 2 * options.padding[i] + kernel + options.output_padding[i]
                     : window_count(x[i + 2], kernel, options.stride[i], options.padding[i]);
  }
  return out;
}

/// What the run holds now, and the largest workspace that it held before. Asked where a plan is large enough to matter:
/// it goes through the trace.
struct Held {
  Bytes now = 0, workspace = 0;
};

Held held_by(const Trace& trace) {
  Held held;
  for (const Event& event : trace.events) {
    if (!event.moves_block()) continue;
    const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
    held.now += event.kind == EventKind::kAllocate ? block.requested : -block.requested;
    if (block.category == Category::kWorkspaces) held.workspace = std::max(held.workspace, block.requested);
  }
  return held;
}

/// None where it finds no memory.
Bytes workspace_on(const Tape& tape, const ConvolutionShape& shape, ConvolutionPass pass, DType dtype) {
  const Bytes bytes = convolution_workspace(shape, pass, dtype, tape.kernels.convolutions_in_tf32);
  if (!is_large_workspace(bytes, tape.device)) return bytes;
  const Held held = held_by(tape.memory.trace);
  const Bytes earlier = is_large_workspace(held.workspace, tape.device) ? held.workspace : 0;
  return workspace_finds_memory(bytes, held.now, earlier, tape.device) ? bytes : 0;
}

/// One GEMM a group: rows are pixels.
void count_kernel(Tape& tape, const Operator& op, DType dtype, const ConvolutionShape& s, bool depthwise,
                  ConvolutionPass pass) {
  const auto elements = [](std::int64_t a, std::int64_t b, std::int64_t depth, std::int64_t height,
                           std::int64_t width) {
    return static_cast<double>(a * b) * static_cast<double>(depth * height * width);
  };
  // Not the unfolded matrix: each image is read once.
  const double bytes =
      static_cast<double>(size_of(dtype)) *
      (elements(s.batch, s.in_channels, s.depth, s.height, s.width) +
       elements(s.batch, s.out_channels, s.out_depth, s.out_height, s.out_width) +
       elements(s.out_channels, s.in_channels / s.groups, s.kernel_depth, s.kernel_height, s.kernel_width));
  tape.kernels.convolution(op, dtype, depthwise ? KernelKind::kDepthwiseConvolution : KernelKind::kConvolution,
                           {.groups = s.groups,
                            .pixels = s.batch * s.out_depth * s.out_height * s.out_width,
                            .channels = s.out_channels / s.groups,
                            .depth = s.in_channels / s.groups * s.kernel_depth * s.kernel_height * s.kernel_width,
                            .group_channels = static_cast<double>(s.in_channels / s.groups),
                            .backward = pass != ConvolutionPass::kForward,
                            .weight_gradient = pass == ConvolutionPass::kWeightGradient,
                            .channels_last = s.channels_last,
                            .dimensions = static_cast<std::int8_t>(s.spatial_rank),
                            .images = s.batch},
                           bytes);
}

/// cuda/DepthwiseConv2d.cu, conv_depthwise2d_backward_cuda_out: row-major operands, no workspace.
void depthwise_backward(BackwardCall& call, const Tensor& x, const Tensor& weight, const ConvolutionShape& shape) {
  Tape& tape = call.tape;
  const Tensor dy = in_layout(call.gradient(), false, aten::kContiguous);
  const auto pass = [&](int input, const Tensor& like, const Tensor& other) {
    if (!call.needs(input)) return;
    const Tensor rows = in_layout(other, false, aten::kContiguous);
    call.set(input, tape.empty(like.shape(), like.dtype(), aten::kConvolutionBackward));
    count_kernel(tape, aten::kConvolutionBackward, dy.dtype(), shape, true,
                 input == 1 ? ConvolutionPass::kWeightGradient : ConvolutionPass::kInputGradient);
  };
  pass(1, weight, x);
  pass(0, x, weight);
}

/// Convolution.cpp converts the gradient to the input's layout once; cudnn/ConvShared.cpp makes what is a view
/// contiguous in each of its calls. A transposed convolution's passes are those of the one that it is the gradient of.
void cudnn_backward(BackwardCall& call, const Tensor& x, const Tensor& weight, const ConvolutionShape& shape) {
  Tape& tape = call.tape;
  const DType dtype = x.dtype();
  const bool channels_last = shape.channels_last;
  const Tensor& gradient = call.gradient();
  const Tensor operand = call.needs(1) ? in_layout(x, channels_last, aten::kContiguous) : x;
  const bool converts = is_channels_last(gradient) || channels_last || shape.transposed;
  const Tensor dy = converts ? in_layout(gradient, channels_last, aten::kToCopy) : gradient;
  const auto pass = [&](int input, const Tensor& like, ConvolutionPass kind) {
    if (!call.needs(input)) return;
    const bool of_weight = kind == ConvolutionPass::kWeightGradient;
    Tensor rows;
    if (of_weight) rows = in_layout(dy, channels_last, aten::kContiguous);
    Tensor result = empty_in_layout(tape, like.shape(), dtype, channels_last, aten::kConvolutionBackward);
    if (!of_weight) rows = in_layout(dy, channels_last, aten::kContiguous);
    const Tensor other = in_layout(of_weight ? operand : weight, channels_last, aten::kContiguous);
    tape.memory.scratch(workspace_on(tape, shape, kind, dtype), aten::kConvolutionBackward, Category::kWorkspaces);
    count_kernel(tape, aten::kConvolutionBackward, dtype, shape, false, kind);
    call.set(input, std::move(result));
  };
  pass(0, x, shape.transposed ? ConvolutionPass::kForward : ConvolutionPass::kInputGradient);
  pass(1, weight, ConvolutionPass::kWeightGradient);
}

/// The convolution itself of what was called: of a transposed one that which leads back.
ConvolutionShape convolution_of(const Tensor& x, const Tensor& weight, const Shape& result,
                                const ConvolutionOptions& options) {
  ConvolutionShape shape = options.transposed ? shape_of(result, weight.shape(), x.shape(), options)
                                              : shape_of(x.shape(), weight.shape(), result, options);
  shape.channels_last = is_channels_last(x) || is_channels_last(weight);
  return shape;
}

void convolution_backward(BackwardCall& call) {  // inputs: x, weight, bias; saved: x, weight
  // Convolution.cpp: a sequence is made row-major first, for as long as all of its gradients take.
  const Tensor x = call.saved(0).rank() == 3 ? in_layout(call.saved(0), false, aten::kContiguous) : call.saved(0);
  const Tensor& weight = call.saved(1);
  const Tensor& gradient = call.gradient();
  const ConvolutionShape shape = convolution_of(x, weight, gradient.shape(), call.payload<ConvolutionOptions>());
  if (uses_depthwise_kernel(shape, x.dtype())) {
    depthwise_backward(call, x, weight, shape);
  } else {
    cudnn_backward(call, x, weight, shape);
  }
  if (call.needs(2)) {
    Shape channels = gradient.shape();
    for (int i = 0; i < channels.rank; ++i) channels[i] = i == 1 ? channels[i] : 1;
    Tensor sum = sum_to(gradient, channels);
    call.set(2, call.tape.alias(sum, {channels[1]}, {1}, false));
  }
}

}  // namespace

void add_channel_bias(const Tensor& result, const Tensor& bias) {
  KernelLog& kernels = result.tape().kernels;
  kernels.pass_view();
  kernels.add(aten::kAddInPlace, OperatorClass::kElementwise, result.dtype(), static_cast<double>(result.elements()),
              static_cast<double>(2 * result.bytes() + bias.bytes()), KernelKind::kStrided,
              static_cast<double>(result.elements()));
  if (Kernel* const kernel = kernels.last()) kernel->node = &kWithinOperator;
}

Tensor convolution(Arg x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& options) {
  const OperatorCall call(x);
  Tensor vector;
  if (bias.defined()) vector = autocast(aten::kConvolution, bias);
  const Tensor filter = autocast(aten::kConvolution, weight);
  const Tensor image = autocast(aten::kConvolution, *x);
  Tape& tape = image.tape();
  const Tensor* inputs[] = {&image, &filter, &vector};
  Node* node = tape.autograd.record(aten::kConvolution, convolution_backward, inputs, bias.defined() ? 3 : 2);
  if (node != nullptr) {
    node->payload.set(options);
    tape.autograd.save(*node, image);
    tape.autograd.save(*node, filter);
  }
  const Shape out = result_shape(image.shape(), filter.shape(), options);
  for (int i = 2; i < out.rank; ++i) {
    if (out[i] < 1) throw refusal(rules::kImageLargeEnough, {"convolutions"});
  }
  const ConvolutionShape shape = convolution_of(image, filter, out, options);
  const bool depthwise = uses_depthwise_kernel(shape, image.dtype());
  const bool channels_last = shape.channels_last;
  // A sequence is made row-major first, and seen as an image.
  const Tensor operand = in_layout(image, channels_last && !depthwise, aten::kContiguous);
  Tensor result;
  if (depthwise) {
    result = tape.empty(out, image.dtype(), aten::kConvDepthwise2d);
    const Tensor filter_copy = in_layout(filter, false, aten::kContiguous);
    count_kernel(tape, aten::kConvDepthwise2d, image.dtype(), shape, true, ConvolutionPass::kForward);
  } else {
    result = empty_in_layout(tape, out, image.dtype(), channels_last, aten::kCudnnConvolution);
    const Tensor filter_copy = in_layout(filter, channels_last, aten::kContiguous);
    const ConvolutionPass pass = shape.transposed ? ConvolutionPass::kInputGradient : ConvolutionPass::kForward;
    tape.memory.scratch(workspace_on(tape, shape, pass, image.dtype()), aten::kCudnnConvolution, Category::kWorkspaces);
    count_kernel(tape, aten::kCudnnConvolution, image.dtype(), shape, false, pass);
    if (bias.defined()) add_channel_bias(result, vector);
  }
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
