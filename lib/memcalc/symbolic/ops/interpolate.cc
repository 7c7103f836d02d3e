// MIRRORS(torch, "cuda/UpSampleNearest2d.cu", "2.11.0")
// MIRRORS(torch, "native/PixelShuffle.cpp", "2.11.0")
// MIRRORS(torch, "native/UpSampleNearest2d.cpp", "2.11.0")
#include "memcalc/symbolic/ops/interpolate.h"

#include <algorithm>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/channels_last.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// Reads of each result's neighbours stay in the cache: each image moves once.
void image_kernel(const Operator& op, const Tensor& from, const Tensor& to, int flops) {
  const Tensor& larger = from.elements() > to.elements() ? from : to;
  from.tape().kernels.add(op, OperatorClass::kElementwise, from.dtype(), flops * static_cast<double>(larger.elements()),
                          static_cast<double>(from.bytes() + to.bytes()), KernelKind::kImage,
                          static_cast<double>(larger.elements()));
}

/// What a kernel that goes over the images one by one has to know: not those for channels last, but for cubic ones.
void describe_resize(const Tensor& from, const Tensor& to, bool backward, bool row_major) {
  from.tape().kernels.describe(work::Resize{.planes = from.size(0) * from.size(1),
                                            .from_width = from.size(3),
                                            .to_width = to.size(3),
                                            .backward = backward,
                                            .row_major = row_major});
}

/// It saves nothing but sizes. The result has the gradient's layout (native/UpSampleNearest2d.cpp, UpSampleBilinear2d
/// .cpp), that of cubic ones is row-major (UpSampleBicubic2d.cpp), whose kernel reads any strides.
template <const AtenOperator& op, bool any_strides, int flops>
void interpolate_backward(BackwardCall& call) {
  const Tensor& gradient = call.gradient();
  const bool channels_last = !any_strides && is_channels_last(gradient);
  Tensor result = empty_in_layout(call.tape, call.payload<InputShape>().shape, gradient.dtype(), channels_last, op);
  const Tensor dy = any_strides ? gradient : in_layout(gradient, channels_last, aten::kContiguous);
  if (&op == &aten::kUpsampleBilinear2dBackward && result.shape() == dy.shape()) {
    call.tape.kernels.add(op, OperatorClass::kMovement, result.dtype(), 0, 2.0 * static_cast<double>(result.bytes()));
    call.set(0, std::move(result));
    return;
  }
  image_kernel(op, dy, result, flops);
  const bool goes_over_planes =
      &op == &aten::kUpsampleBicubic2dBackward || (&op == &aten::kUpsampleBilinear2dBackward && !channels_last);
  if (goes_over_planes && result.rank() == 4) describe_resize(result, dy, true, true);
  call.set(0, std::move(result));
}

}  // namespace

Tensor interpolate(Arg x, const Shape& shape, Interpolation mode) {
  const OperatorCall call(x);
  const bool nearest = mode == Interpolation::kNearest, cubic = mode == Interpolation::kCubic;
  const AtenOperator& op = nearest ? aten::kUpsampleNearest2d
                           : cubic ? aten::kUpsampleBicubic2d
                                   : aten::kUpsampleBilinear2d;
  const Tensor input = autocast(op, *x);
  Tape& tape = input.tape();
  const Tensor* inputs[] = {&input};
  Node* node = tape.autograd.record(op,
                                    nearest ? interpolate_backward<aten::kUpsampleNearest2dBackward, false, 1>
                                    : cubic ? interpolate_backward<aten::kUpsampleBicubic2dBackward, true, 40>
                                            : interpolate_backward<aten::kUpsampleBilinear2dBackward, false, 10>,
                                    inputs, 1);
  if (node != nullptr) node->payload.set(InputShape{input.shape()});
  const bool channels_last = is_channels_last(input);
  Tensor result = empty_in_layout(tape, shape, input.dtype(), channels_last, op);
  if (nearest) {
    // cuda/UpSampleNearest2d.cu: few channels take the row-major kernel, into a copy where the result is not so.
    const bool innermost = channels_last && input.rank() == 4 && input.size(1) >= 16;
    Tensor rows;
    if (channels_last && !innermost) rows = tape.empty(shape, input.dtype(), op);
    const Tensor operand = in_layout(input, innermost, aten::kContiguous);
    image_kernel(op, operand, result, 1);
  } else {
    // The kernels for any strides read views as they are; that for channels last wants no gaps.
    const Tensor operand = channels_last && !cubic ? in_layout(input, true, aten::kContiguous) : input;
    if (!cubic && result.shape() == input.shape()) {  // UpSampleBilinear2d.cu copies
      tape.kernels.add(op, OperatorClass::kMovement, result.dtype(), 0, 2.0 * static_cast<double>(result.bytes()));
    } else {
      image_kernel(op, operand, result, cubic ? 40 : 10);
    }
    if ((cubic || !channels_last) && input.rank() == 4) {
      describe_resize(input, result, false, !cubic || operand.strides()[-1] == 1);
    }
  }
  tape.autograd.set_history(node, result);
  return result;
}

// native/PixelShuffle.cpp: reshape, permute, and a reshape that copies.
Tensor pixel_shuffle(Arg x, std::int64_t factor) {
  const OperatorCall call(x);
  const std::int64_t batch = x->size(0), channels = x->size(1) / (factor * factor);
  const std::int64_t height = x->size(2), width = x->size(3);
  Tensor parts = reshape(*x, {batch, channels, factor, factor, height, width});
  Tensor ordered = permute(std::move(parts), {0, 1, 4, 2, 5, 3});
  return reshape(std::move(ordered), {batch, channels, height * factor, width * factor});
}

Tensor pixel_unshuffle(Arg x, std::int64_t factor) {
  const OperatorCall call(x);
  const std::int64_t batch = x->size(0), channels = x->size(1);
  const std::int64_t height = x->size(2) / factor, width = x->size(3) / factor;
  Tensor parts = reshape(*x, {batch, channels, height, factor, width, factor});
  Tensor ordered = permute(std::move(parts), {0, 1, 3, 5, 2, 4});
  return reshape(std::move(ordered), {batch, channels * factor * factor, height, width});
}

}  // namespace memcalc
