// Matrix products: linear layers and batched matmul, with cuBLAS's workspaces.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// F.linear: x [..., in] times weight [out, in] transposed, plus bias [out] where defined. 16-bit under autocast.
[[nodiscard]] Tensor linear(Arg x, const Tensor& weight, const Tensor& bias);
/// bias + a @ b for matrices; 16-bit under autocast.
[[nodiscard]] Tensor addmm(const Tensor& bias, Arg a, Arg b);
/// torch.matmul of [.., n, k] and [.., k, m] with equal leading dimensions (rank 3 or 4).
[[nodiscard]] Tensor matmul(Arg a, Arg b);

}  // namespace memcalc
