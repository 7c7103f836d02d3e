// Sums and means that leave out what is no number. nanmean() is LLaMA-Factory's KTO's. Covered by
// tests/measured/jobs_test.py and tests/unit/table_rows_test.cc.
#pragma once

#include <optional>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// x.nansum(dims, keepdim): bit i of `dims` stands for dimension i.
[[nodiscard]] Tensor nansum(const Tensor& x, unsigned dims, bool keep_dims, std::optional<DType> dtype = std::nullopt);
/// x.nanmean() of a vector. ReduceOps.cpp: nansum(x) / isnan(x).logical_not_().sum()
[[nodiscard]] Tensor nanmean(const Tensor& x);

}  // namespace memcalc
