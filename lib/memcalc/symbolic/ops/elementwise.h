// Element-wise operators: one read of each operand, one write. Formulas of the backward: derivatives.yaml.
#pragma once

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

[[nodiscard]] Tensor add(Arg a, Arg b);
[[nodiscard]] Tensor multiply(Arg a, Arg b);
/// a / b for a `b` that needs no gradient.
[[nodiscard]] Tensor divide(Arg a, Arg b);
/// a / b where both need a gradient.
[[nodiscard]] Tensor divide_both(Arg a, Arg b);
[[nodiscard]] Tensor subtract(Arg a, Arg b);
/// a /= b
[[nodiscard]] Tensor divide_in_place(const Tensor& a, const Tensor& b);
/// With a Python number on one side: saves nothing.
[[nodiscard]] Tensor add_scalar(Arg x);
[[nodiscard]] Tensor subtract_scalar(Arg x);
[[nodiscard]] Tensor multiply_scalar(Arg x);
[[nodiscard]] Tensor divide_scalar(Arg x);
/// x *= number, x += number: a node of its own on the same storage.
[[nodiscard]] Tensor multiply_in_place(const Tensor& x);
[[nodiscard]] Tensor add_scalar_in_place(const Tensor& x);
/// torch.where(condition, x, number): the number becomes a scalar on the card for the call.
[[nodiscard]] Tensor where(const Tensor& condition, Arg x);
/// torch.clamp between two Python numbers, or with the upper one only.
/// maximum or minimum.
[[nodiscard]] Tensor extremum(const AtenOperator& op, const Tensor& a, const Tensor& b);
[[nodiscard]] Tensor clamp(Arg x);
[[nodiscard]] Tensor clamp_above(Arg x);
/// torch.clamp between two scalars on the card, which need no gradient.
[[nodiscard]] Tensor clamp(Arg x, const Tensor& lowest, const Tensor& highest);
[[nodiscard]] Tensor negate(Arg x);
/// x ** exponent; float32 under autocast.
[[nodiscard]] Tensor power(Arg x);
/// 1 / sqrt(x); float32 under autocast.
[[nodiscard]] Tensor reciprocal_sqrt(Arg x);
[[nodiscard]] Tensor cosine(Arg x);
[[nodiscard]] Tensor sine(Arg x);
[[nodiscard]] Tensor tanh(Arg x);
[[nodiscard]] Tensor relu(Arg x);
[[nodiscard]] Tensor silu(Arg x);
/// torch's fused GELU, exact or with tanh: the memory is the same.
[[nodiscard]] Tensor gelu(Arg x);
/// F.dropout; the identity at probability 0 and in model.eval().
[[nodiscard]] Tensor dropout(Arg x, double probability);

/// x.to(dtype): x itself where it has that type.
[[nodiscard]] Tensor to_dtype(Arg x, DType dtype);
/// x.to(dtype, memory_format=torch.contiguous_format): the copy, where one is made, is row-major.
[[nodiscard]] Tensor to_dtype_row_major(Arg x, DType dtype);
/// What autocast hands to `op` for its operand, by the list that the row stands on; without a region the operand
/// itself. To 16 bits weights go through the cache.
[[nodiscard]] Tensor autocast(const AtenOperator& op, const Tensor& x);
/// The type in which autocast has `op` compute its result, which nobody asked for in a type.
[[nodiscard]] DType autocast_result(const AtenOperator& op, const Tensor& x);
/// What the list "promote" does to operands: all get the widest type.
void autocast_promote(const AtenOperator& op, std::span<Tensor> operands);

[[nodiscard]] inline Tensor operator+(Arg a, Arg b) { return add(std::move(a), std::move(b)); }
[[nodiscard]] inline Tensor operator-(Arg a, Arg b) { return subtract(std::move(a), std::move(b)); }
[[nodiscard]] inline Tensor operator*(Arg a, Arg b) { return multiply(std::move(a), std::move(b)); }

}  // namespace memcalc
