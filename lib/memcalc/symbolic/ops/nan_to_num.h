// torch.nan_to_num, as forward passes call it.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc::no_grad {

/// Of what nobody differentiates.
[[nodiscard]] Tensor nan_to_num(const Tensor& x);

}  // namespace memcalc::no_grad
