// Convolution over images and volumes, with the workspaces that cuDNN takes for a moment. Over sequences: conv1d.h.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// A number for each spatial dimension, outermost first; one number stands for all.
struct SpatialSizes {
  std::array<std::int64_t, 3> of{};

  SpatialSizes(std::int64_t same) : of{same, same, same} {}  // NOLINT(google-explicit-constructor)
  SpatialSizes(std::int64_t first, std::int64_t second, std::int64_t third = 1) : of{first, second, third} {}
  [[nodiscard]] std::int64_t operator[](int i) const { return of[static_cast<std::size_t>(i)]; }
  [[nodiscard]] bool operator==(const SpatialSizes&) const = default;
};

struct ConvolutionOptions {
  SpatialSizes stride = 1;
  SpatialSizes padding = 0;
  std::int64_t groups = 1;
  SpatialSizes dilation = 1;
  bool transposed = false;
  SpatialSizes output_padding = 0;  // of a transposed one
};

/// Convolution.cpp: cuDNN's convolutions add no bias, so output.add_(reshape_bias(bias)) follows each, a kernel over
/// the whole result. PyTorch's own depthwise ones add theirs.
void add_channel_bias(const Tensor& result, const Tensor& bias);

/// F.conv2d, F.conv3d: x [N, C, (D,) H, W], weight [out, C / groups, (kd,) kh, kw], bias [out] where defined;
/// transposed (F.conv_transpose1d, 2d and 3d, of [N, C, (D,) (H,) W]) weight [C, out / groups, …]. 16-bit under
/// autocast.
[[nodiscard]] Tensor convolution(Arg x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& options);
[[nodiscard]] inline Tensor conv2d(Arg x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& options) {
  return convolution(std::move(x), weight, bias, options);
}

}  // namespace memcalc
