// Operators that order values: the values, and where they stood.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

struct Selection {
  Tensor values;
  Tensor indices;  // int64
};

/// torch.sort of a vector, or of each row of a contiguous matrix.
[[nodiscard]] Selection sort(const Tensor& x);
/// torch.topk over the last dimension.
[[nodiscard]] Selection topk(const Tensor& x, std::int64_t k, bool sorted = true);
/// x.max(dim, keepdim=…); the dimension counts from 0.
[[nodiscard]] Selection max_along(const Tensor& x, int dimension, bool keep_dim);

}  // namespace memcalc
