// Pooling over images [N, C, H, W], and over sequences [N, C, L], which torch pools as images of one row.
#pragma once

#include "memcalc/symbolic/ops/conv.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// F.max_pool2d without dilation: the positions of the maxima are kept as int64.
[[nodiscard]] Tensor max_pool2d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding);
[[nodiscard]] Tensor max_pool1d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding);
/// F.avg_pool2d with stride = kernel.
[[nodiscard]] Tensor avg_pool2d(Arg x, std::int64_t kernel);
[[nodiscard]] Tensor avg_pool2d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding);
[[nodiscard]] Tensor avg_pool1d(Arg x, std::int64_t kernel, std::int64_t stride, std::int64_t padding);
/// F.adaptive_avg_pool2d to size x size, or to `shape`; to one pixel it is a mean over both dimensions.
[[nodiscard]] Tensor adaptive_avg_pool2d(Arg x, std::int64_t size);
[[nodiscard]] Tensor adaptive_avg_pool1d(Arg x, std::int64_t size);
[[nodiscard]] Tensor adaptive_avg_pool(Arg x, const Shape& shape);
[[nodiscard]] Tensor adaptive_max_pool(Arg x, const Shape& shape);

/// Of each spatial dimension, outermost first.
struct PoolOptions {
  SpatialSizes kernel = 1, stride = 1, padding = 0, dilation = 1;
  bool ceil_mode = false;
};
/// F.max_pool1d, 2d and 3d; F.avg_pool1d, 2d and 3d.
[[nodiscard]] Tensor max_pool(Arg x, const PoolOptions& options);
[[nodiscard]] Tensor avg_pool(Arg x, const PoolOptions& options);

}  // namespace memcalc
