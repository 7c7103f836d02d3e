// Pooling over images [N, C, H, W].
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// F.max_pool2d without dilation: the positions of the maxima are kept as int64.
[[nodiscard]] Tensor max_pool2d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding);
/// F.avg_pool2d with stride = kernel.
[[nodiscard]] Tensor avg_pool2d(Arg x, std::int64_t kernel);
/// F.adaptive_avg_pool2d to size x size; to one pixel it is a mean over both dimensions.
[[nodiscard]] Tensor adaptive_avg_pool2d(Arg x, std::int64_t size);

}  // namespace memcalc
