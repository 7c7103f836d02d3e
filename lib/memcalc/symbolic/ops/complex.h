// Complex numbers, as rotary positions may be written with them.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

[[nodiscard]] inline bool is_complex(const Tensor& x) { return x.dtype() == DType::kComplex64; }
/// x [..., 2] float32 seen as complex64 [...], and back.
[[nodiscard]] Tensor view_as_complex(Arg x);
[[nodiscard]] Tensor view_as_real(Arg x);
/// torch.polar of float32 of the same shape, which nobody differentiates.
[[nodiscard]] Tensor polar(const Tensor& absolute, const Tensor& angle);
/// x * y, both complex64, for a `y` that needs no gradient.
[[nodiscard]] Tensor multiply_complex(Arg x, const Tensor& y);

}  // namespace memcalc
