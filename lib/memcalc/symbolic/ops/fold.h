// F.unfold and F.fold: images to columns of windows and back. x.unfold: windows as a view.
#pragma once

#include "memcalc/symbolic/ops/conv.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// x [N, C, H, W] to [N, C · window, places]. `options.stride`, `.padding` and `.dilation` as of a convolution.
[[nodiscard]] Tensor unfold(const Tensor& x, const SpatialSizes& window, const ConvolutionOptions& options);

/// x [N, C · window, places] to images [N, C, H, W], where windows overlap their sum.
[[nodiscard]] Tensor fold(const Tensor& x, const Shape& images);

/// x.unfold(dim, size, step): all windows of `size` along `dim`, `step` apart, as a last dimension.
[[nodiscard]] Tensor windows(const Tensor& x, int dim, std::int64_t size, std::int64_t step);

}  // namespace memcalc
