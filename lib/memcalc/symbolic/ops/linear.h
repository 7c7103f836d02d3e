// Matrix products: linear layers and batched matmul, with cuBLAS's workspaces.
#pragma once

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// torchao's Float8Linear, as a capture names it: its casts and their derivatives are train/compile/rules_float8.cc.
inline constexpr AtenOperator kFloat8Product{{"torchao::matmul_with_hp_or_float8_args"},
                                             {"matmul_with_hp_or_float8_argsBackward"},
                                             AutocastList::kNone,
                                             CompileRule::kFloat8Product};

/// F.linear: x [..., in] times weight [out, in] transposed, plus bias [out] where defined. 16-bit under autocast.
[[nodiscard]] Tensor linear(Arg x, const Tensor& weight, const Tensor& bias);
/// bias + a @ b for matrices; 16-bit under autocast.
[[nodiscard]] Tensor addmm(const Tensor& bias, Arg a, Arg b);
/// torch.matmul of matrices and stacks of them, whose leading dimensions are broadcast, and of vectors. 16-bit under
/// autocast.
[[nodiscard]] Tensor matmul(Arg a, Arg b);
/// torch.bmm of [batch, n, k] and [batch, k, m]; 16-bit under autocast.
[[nodiscard]] Tensor batched_product(Arg a, Arg b);

}  // namespace memcalc
