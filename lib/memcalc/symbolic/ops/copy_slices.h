// Writing into a part of a tensor that autograd follows.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// base[..., start:start+length].copy_(source) with `source` of that shape: `base` with its new history.
[[nodiscard]] Tensor copy_into_columns(const Tensor& base, std::int64_t start, const Tensor& source);

}  // namespace memcalc
