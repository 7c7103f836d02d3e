// x.nanmean() of a vector: LLaMA-Factory's KTO. Covered by tests/measured/jobs_test.py.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// ReduceOps.cpp: nansum(x) / isnan(x).logical_not_().sum()
[[nodiscard]] Tensor nanmean(const Tensor& x);

}  // namespace memcalc
