// F.interpolate: images, sequences and volumes made larger or smaller.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

enum class Interpolation : std::uint8_t { kNearest, kLinear, kCubic };

/// x [N, C, …] to `shape`; float32 under autocast. kLinear: linear, bilinear, trilinear.
[[nodiscard]] Tensor interpolate(Arg x, const Shape& shape, Interpolation mode);

/// F.pixel_shuffle by `factor`, or F.pixel_unshuffle: a copy whose pixels are channels of the operand.
[[nodiscard]] Tensor pixel_shuffle(Arg x, std::int64_t factor);
[[nodiscard]] Tensor pixel_unshuffle(Arg x, std::int64_t factor);

}  // namespace memcalc
