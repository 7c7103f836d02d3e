// torch.cat of any number of tensors.
#pragma once

#include <span>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// Along `dim`, in the first one's type. In backward each gets a view of the gradient, in order.
[[nodiscard]] Tensor concatenate(std::span<const Tensor> parts, int dim);
/// The same in `dtype`, to which the kernel converts what it reads.
[[nodiscard]] Tensor concatenate(std::span<const Tensor> parts, int dim, DType dtype);

}  // namespace memcalc
