// Liger's Triton kernels (liger-kernel 0.8): several operators in one, gradients written over what they were computed
// from.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// LigerRMSNormFunction, in place in backward: keeps x and one float32 number per row.
[[nodiscard]] Tensor liger_rms_norm(const Tensor& x, const Tensor& weight);
/// LigerRopeFunction for one of query and key [batch, heads, sequence, width]: rotates in place.
[[nodiscard]] Tensor liger_rotate(const Tensor& x, const Tensor& cos, const Tensor& sin);
/// LigerSiLUMulFunction: silu(gate) * up, whose gradients overwrite gate and up.
[[nodiscard]] Tensor liger_silu_multiply(Arg gate, Arg up);
/// LigerFusedLinearCrossEntropyFunction: the loss of hidden [rows, width] @ weight.T, chunk by chunk; the gradients are
/// computed in forward, the logits never exist as a whole.
[[nodiscard]] Tensor liger_linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets);

}  // namespace memcalc
