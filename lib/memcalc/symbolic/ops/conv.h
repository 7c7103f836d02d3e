// Convolution, with the workspaces that cuDNN takes for a moment.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

struct ConvolutionOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  std::int64_t groups = 1;
};

/// F.conv2d: x [N, C, H, W], weight [out, C / groups, kh, kw], bias [out] where defined. 16-bit under autocast.
[[nodiscard]] Tensor conv2d(Arg x, const Tensor& weight, const Tensor& bias, const ConvolutionOptions& options);

}  // namespace memcalc
