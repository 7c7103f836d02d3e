// Weight normalisation (torch.nn.utils.parametrizations.weight_norm).
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// torch._weight_norm(v, g) over the first or the last dimension: v, scaled so that its norms are g.
[[nodiscard]] Tensor weight_norm(const Tensor& v, const Tensor& g);

}  // namespace memcalc
