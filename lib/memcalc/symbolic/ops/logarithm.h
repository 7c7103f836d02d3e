// Logarithms and what goes with them where a loss is made of probabilities: log, log(1 + x), exp(x) - 1, and the choice
// between two of them. Covered by tests/unit/logarithm_test.cc.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// torch.log, torch.log1p, torch.expm1; float32 under autocast.
[[nodiscard]] Tensor logarithm(Arg x);
[[nodiscard]] Tensor log1p(Arg x);
[[nodiscard]] Tensor expm1(Arg x);
/// torch.where(condition, a, b) of tensors.
[[nodiscard]] Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

}  // namespace memcalc
