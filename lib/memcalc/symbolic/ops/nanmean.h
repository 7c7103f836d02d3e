// Sums, means and deviations that leave out what is no number. Covered by tests/measured/jobs_test.py,
// tests/unit/table_rows_test.cc and tests/unit/nanmean_test.cc.
// MIRRORS(trl, "trainer/utils.py", "1.16.0")
#pragma once

#include <optional>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// x.nansum(dims, keepdim): bit i of `dims` stands for dimension i.
[[nodiscard]] Tensor nansum(const Tensor& x, unsigned dims, bool keep_dims, std::optional<DType> dtype = std::nullopt);
/// x.nanmean() of a vector. ReduceOps.cpp: nansum(x) / isnan(x).logical_not_().sum()
[[nodiscard]] Tensor nanmean(const Tensor& x);

/// Of numbers that nobody differentiates, which the list of kernels leaves out (integer.h).
namespace no_grad {

[[nodiscard]] Tensor nansum(const Tensor& x, unsigned dims, bool keep_dims);
[[nodiscard]] Tensor nanmean(const Tensor& x, unsigned dims, bool keep_dims);
/// trl/trainer/utils.py, nanstd: torch has none. Dimensions are kept: what squeezes them is a view.
[[nodiscard]] Tensor nanstd(const Tensor& x, unsigned dims);

}  // namespace no_grad

}  // namespace memcalc
