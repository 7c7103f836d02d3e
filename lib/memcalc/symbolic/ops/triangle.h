// torch.tril and torch.triu.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// A copy of which one triangle is kept.
[[nodiscard]] Tensor lower_triangle(const Tensor& x);
[[nodiscard]] Tensor upper_triangle(const Tensor& x);

}  // namespace memcalc
