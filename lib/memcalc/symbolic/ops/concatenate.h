// torch.cat of any number of tensors.
#pragma once

#include <span>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// Of one dtype, along `dim`. In backward each gets a view of the gradient, in order.
[[nodiscard]] Tensor concatenate(std::span<const Tensor> parts, int dim);

}  // namespace memcalc
