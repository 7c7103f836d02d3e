// accelerate's gather() (1.15, utils/operations.py) in a loop that runs on every rank of a data-parallel group. On one
// process it gives what it was given. Covered by tests/unit/gather_test.cc.
// MIRRORS(accelerate, "utils/operations.py", "1.15.0")
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// gather(x): [processes * rows, ...] of x [rows, ...], [processes] of a number. Without history.
[[nodiscard]] Tensor gathered(const Tensor& x);

/// gather(x.sum()).sum()
[[nodiscard]] Tensor gathered_sum(const Tensor& x);

/// pad_across_processes(x, dim=1) where it is equally long everywhere: each process tells its sizes.
void compare_sizes(const Tensor& x);

}  // namespace memcalc
