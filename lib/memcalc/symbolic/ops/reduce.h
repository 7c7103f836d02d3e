// Sums and means, with the staging buffer that PyTorch's reduction kernel takes when it splits one output's inputs
// over several thread blocks.
#pragma once

#include "memcalc/symbolic/tensor.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// at::sum_to: sums the dimensions over which `shape` was broadcast.
[[nodiscard]] Tensor sum_to(Arg x, const Shape& shape);
/// x.mean(-1, keepdim=True)
[[nodiscard]] Tensor mean_last(Arg x);
/// x.sum() or x.mean() over everything: a scalar.
[[nodiscard]] Tensor sum_all(Arg x);

/// Bytes of the staging buffer and of the semaphores; both 0 where each output is summed by one thread block.
struct ReductionScratch {
  Bytes staging = 0;
  Bytes semaphores = 0;
};

/// What gpu_reduce_kernel requests for `x`, summed over the dimensions marked in `reduced` (bit i: dimension i)
/// (ATen/native/cuda/Reduce.cuh, setReduceConfig; the accumulator is float32 for 16-bit elements).
[[nodiscard]] ReductionScratch reduction_scratch(const Tensor& x, unsigned reduced);

}  // namespace memcalc
