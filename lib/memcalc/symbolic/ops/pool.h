// Pooling over images [N, C, H, W], and over sequences [N, C, L], which torch pools as images of one row.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// F.max_pool2d without dilation: the positions of the maxima are kept as int64.
[[nodiscard]] Tensor max_pool2d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding);
[[nodiscard]] Tensor max_pool1d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding);
/// F.avg_pool2d with stride = kernel.
[[nodiscard]] Tensor avg_pool2d(Arg x, std::int64_t kernel);
[[nodiscard]] Tensor avg_pool2d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding);
[[nodiscard]] Tensor avg_pool1d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding);
/// F.adaptive_avg_pool2d to size x size; to one pixel it is a mean over both dimensions.
[[nodiscard]] Tensor adaptive_avg_pool2d(Arg x, std::int64_t size);
[[nodiscard]] Tensor adaptive_avg_pool1d(Arg x, std::int64_t size);

}  // namespace memcalc
