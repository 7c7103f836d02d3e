// torch.amax.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// x.amax(dims, keepdim): bit i of `dims` stands for dimension i. Saves x and its result.
[[nodiscard]] Tensor amax(const Tensor& x, unsigned dims, bool keep_dims);

}  // namespace memcalc
