// What sorting asks for beside its results.
#pragma once

#include <cstdint>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// cuda/SortStable.cu, rows of that length: asks for what it takes and returns how many kernels it launches.
std::int32_t sort_rows(const Tensor& x, std::int64_t length);

}  // namespace memcalc
