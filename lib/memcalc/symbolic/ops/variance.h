// torch.var and torch.std over dimensions, and torch.sqrt. Covered by tests/unit/table_rows_test.cc.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// Bit i of `reduced` stands for dimension i. The correction of the count changes no memory.
[[nodiscard]] Tensor variance(const Tensor& x, unsigned reduced, bool keep_dims);
[[nodiscard]] Tensor standard_deviation(const Tensor& x, unsigned reduced, bool keep_dims);
[[nodiscard]] Tensor square_root(Arg x);

}  // namespace memcalc
