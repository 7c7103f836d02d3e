// torch.rsub. Covered by tests/unit/table_rows_test.cc and tests/measured/jobs_test.py.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// number - x: saves nothing, and its backward negates.
[[nodiscard]] Tensor subtract_from_number(const Tensor& x);

}  // namespace memcalc
