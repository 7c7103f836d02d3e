// Writing into a part of a tensor that autograd follows.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// base[..., start:start+length].copy_(source) with `source` of that shape: `base` with its new history.
[[nodiscard]] Tensor copy_into_columns(const Tensor& base, std::int64_t start, const Tensor& source);
/// view.copy_(source) for any view of `base`.
[[nodiscard]] Tensor copy_into_view(const Tensor& base, const Tensor& view, const Tensor& source);
/// x.copy_(source) of all of x.
[[nodiscard]] Tensor copy_in_place(const Tensor& x, const Tensor& source);

}  // namespace memcalc
