// Sums and means, with the staging buffer that PyTorch's reduction kernel takes when it splits one output's inputs
// over several thread blocks.
#pragma once

#include <optional>

#include "memcalc/symbolic/tensor.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// at::sum_to: sums the dimensions over which `shape` was broadcast.
[[nodiscard]] Tensor sum_to(Arg x, const Shape& shape);
/// x.mean(dims, keepdim), x.sum(dims, keepdim): bit i of `reduced` stands for dimension i. A sum is float32 under
/// autocast where no type is asked for.
[[nodiscard]] Tensor mean(const Tensor& x, unsigned reduced, bool keep_dims);
[[nodiscard]] Tensor sum(const Tensor& x, unsigned reduced, bool keep_dims, std::optional<DType> dtype = std::nullopt);
/// The reduction kernel by itself, without autograd.
[[nodiscard]] Tensor reduced(const Operator& op, const Tensor& x, unsigned reduced, bool keep_dims,
                             std::optional<DType> dtype = std::nullopt);
/// x.mean(-1, keepdim=True)
[[nodiscard]] Tensor mean_last(Arg x);
/// x.mean(dim)
[[nodiscard]] Tensor mean_over(Arg x, int dim);
/// x.mean([-1, -2], keepdim=True): what adaptive_avg_pool2d to one pixel does.
[[nodiscard]] Tensor mean_pixels(Arg x);
/// x.sum(dim); a float32 result under autocast.
[[nodiscard]] Tensor sum_over(Arg x, int dim, bool keep_dim);
/// x.sum() or x.mean() over everything: a scalar.
[[nodiscard]] Tensor sum_all(Arg x);
/// x.argmax(-1): int64.
[[nodiscard]] Tensor argmax_last(Arg x);

/// Requests and returns what gpu_reduce_kernel takes for `x`, reduced over the dimensions marked in `reduced` (bit i:
/// dimension i): a staging buffer and semaphores where one output's inputs are split over thread blocks.
/// `accumulator_size`: bytes; 4 for 16-bit elements. (ATen/native/cuda/Reduce.cuh, setReduceConfig; checked against
/// 10,872 measured reductions.)
void reduction_scratch(const Tensor& x, unsigned reduced, std::int64_t accumulator_size, const Operator& op);

}  // namespace memcalc
