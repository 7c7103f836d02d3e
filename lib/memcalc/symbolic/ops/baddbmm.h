// torch.baddbmm, as a family calls it. Covered by tests/measured/program_test.cc.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// input + alpha * (batch1 @ batch2) for stacks [n, rows, inner] and [n, inner, columns]: [n, rows, columns]. 16-bit
/// under autocast.
[[nodiscard]] Tensor baddbmm(const Tensor& input, const Tensor& batch1, const Tensor& batch2);

}  // namespace memcalc
