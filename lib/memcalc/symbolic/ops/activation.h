// Activation functions of image models, many of them in place: the result then shares its operand's storage.
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// x.relu_(): keeps the result, so nothing is copied.
[[nodiscard]] Tensor relu_in_place(const Tensor& x);
/// x.silu_(), hardswish_(), hardtanh_() (ReLU6): autograd keeps a copy of the operand.
[[nodiscard]] Tensor silu_in_place(const Tensor& x);
[[nodiscard]] Tensor hardswish_in_place(const Tensor& x);
[[nodiscard]] Tensor relu6_in_place(const Tensor& x);
/// Out of place: autograd keeps the operand.
[[nodiscard]] Tensor hardswish(Arg x);
[[nodiscard]] Tensor relu6(Arg x);
[[nodiscard]] Tensor leaky_relu(Arg x);
[[nodiscard]] Tensor elu(Arg x);
[[nodiscard]] Tensor mish(Arg x);
[[nodiscard]] Tensor softplus(Arg x);
[[nodiscard]] Tensor hardsigmoid(Arg x);
[[nodiscard]] Tensor sigmoid(Arg x);
/// torch.exp
[[nodiscard]] Tensor exponential(Arg x);
/// a += b
[[nodiscard]] Tensor add_in_place(const Tensor& a, const Tensor& b);
/// F.dropout(x, p, inplace=True): multiplied by noise of the operand's own type.
[[nodiscard]] Tensor dropout_in_place(const Tensor& x, double probability);
/// torchvision.ops.stochastic_depth in mode "row": whole samples are dropped.
[[nodiscard]] Tensor stochastic_depth(const Tensor& x, double probability);

/// F.logsigmoid
[[nodiscard]] Tensor log_sigmoid(Arg x);

}  // namespace memcalc
