// Matrix products: linear layers and batched matmul, with cuBLAS's workspaces.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// torchao's Float8Linear, as a capture names it: its casts and their derivatives are train/compile/rules_float8.cc.
inline constexpr char kFloat8ProductName[] = "matmul_with_hp_or_float8_argsBackward";

/// F.linear: x [..., in] times weight [out, in] transposed, plus bias [out] where defined. 16-bit under autocast.
[[nodiscard]] Tensor linear(Arg x, const Tensor& weight, const Tensor& bias);
/// bias + a @ b for matrices; 16-bit under autocast.
[[nodiscard]] Tensor addmm(const Tensor& bias, Arg a, Arg b);
/// torch.matmul of [.., n, k] and [.., k, m] with equal leading dimensions (rank 3 or 4).
[[nodiscard]] Tensor matmul(Arg a, Arg b);

}  // namespace memcalc
