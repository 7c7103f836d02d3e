// x[places] = values, of tensors that are differentiated. Covered by tests/unit/table_rows_test.cc.
#pragma once

#include <span>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// index_put_ at places of int64; `values` undefined: a number. `x` with its new history.
[[nodiscard]] Tensor put_at_places(const Tensor& x, std::span<const Tensor> indices, const Tensor& values);
/// inverse = empty_like(permutation); inverse[permutation] = arange(size)
[[nodiscard]] Tensor inverse_permutation(const Tensor& permutation);

}  // namespace memcalc
