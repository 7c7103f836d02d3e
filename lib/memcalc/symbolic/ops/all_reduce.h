// The autograd functions with which transformers' expert parallel modules sum over ranks (transformers 5.17,
// distributed/tensor_parallel.py).
// MIRRORS(transformers, "distributed/tensor_parallel.py", "5.17.0")
#pragma once

#include <cstdint>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// _AllReduceForward: x itself, summed over the ranks in place; its gradient passes.
[[nodiscard]] Tensor all_reduce_forward(const Tensor& x, std::int64_t ranks);
/// _AllReduceBackward: x itself; its gradient is summed over the ranks in place.
[[nodiscard]] Tensor all_reduce_backward(const Tensor& x, std::int64_t ranks);

}  // namespace memcalc
