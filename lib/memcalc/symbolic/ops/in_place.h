// Changes of a whole tensor by another one. Covered by tests/unit/table_rows_test.cc.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// x *= y: where y is differentiated, what x was is cloned first (VariableType).
[[nodiscard]] Tensor multiply_in_place(const Tensor& x, const Tensor& y);

}  // namespace memcalc
