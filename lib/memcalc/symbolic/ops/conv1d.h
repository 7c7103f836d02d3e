// Convolution over a sequence.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// F.conv1d: x [N, C, L], weight [out, C / groups, k], bias [out] where defined. 16-bit under autocast.
[[nodiscard]] Tensor conv1d(Arg x, const Tensor& weight, const Tensor& bias, std::int64_t stride, std::int64_t padding,
                            std::int64_t dilation = 1);

}  // namespace memcalc
