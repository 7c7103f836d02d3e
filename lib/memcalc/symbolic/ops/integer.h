// Operators on what nobody differentiates: masks, positions, tokens, and the few numbers that are made of them. Each
// asks for what ATen's operator of the same name asks for. Autograd and a compiler's tracer do not see them. Nor does
// the list of kernels: each works on some thousand numbers, and a step's time was fitted to measured steps without
// them; of calls that do not train it has them (KernelLog::integers). Covered by tests/unit/integer_test.cc.
// MIRRORS(torch, "native/Distributions.cpp", "2.11.0")
// MIRRORS(torch, "native/Pow.cpp", "2.11.0")
// MIRRORS(torch, "native/TensorCompare.cpp", "2.11.0")
#pragma once

#include <initializer_list>
#include <optional>
#include <utility>

#include "memcalc/symbolic/tensor.h"

namespace memcalc::no_grad {

// --- tensors of given values
[[nodiscard]] Tensor arange(Tape& tape, std::int64_t length, DType dtype = DType::kInt64);
[[nodiscard]] Tensor zeros(Tape& tape, const Shape& shape, DType dtype);
[[nodiscard]] Tensor ones(Tape& tape, const Shape& shape, DType dtype);
[[nodiscard]] Tensor full(Tape& tape, const Shape& shape, DType dtype);
/// x.new_zeros(shape), x.new_ones(shape): on x's device, in another shape and type.
[[nodiscard]] Tensor new_zeros(Tape& tape, const Shape& shape, DType dtype);
[[nodiscard]] Tensor new_ones(Tape& tape, const Shape& shape, DType dtype);
[[nodiscard]] Tensor empty_like(const Tensor& x);
[[nodiscard]] Tensor zeros_like(const Tensor& x);
[[nodiscard]] Tensor ones_like(const Tensor& x);
[[nodiscard]] Tensor full_like(const Tensor& x);
/// A number that a kernel reads from the card (at::scalar_tensor).
[[nodiscard]] Tensor scalar(Tape& tape, DType dtype);
/// torch.tensor([…], device="cuda"): made on the host and copied.
[[nodiscard]] Tensor from_list(Tape& tape, const Shape& shape, DType dtype = DType::kInt64);

// --- element by element; with one tensor, the other operand is a Python number
[[nodiscard]] Tensor add(Arg a, Arg b);
[[nodiscard]] Tensor add(Arg x);
[[nodiscard]] Tensor subtract(Arg a, Arg b);
[[nodiscard]] Tensor subtract(Arg x);
[[nodiscard]] Tensor multiply(Arg a, Arg b);
/// `dtype`: of the result, where a Python float makes floats of integers.
[[nodiscard]] Tensor multiply(Arg x, std::optional<DType> dtype = std::nullopt);
[[nodiscard]] Tensor divide(Arg a, Arg b);
[[nodiscard]] Tensor divide(Arg x);
[[nodiscard]] Tensor floor_divide(Arg x);
[[nodiscard]] Tensor remainder(Arg x);
[[nodiscard]] Tensor minimum(Arg a, Arg b);
[[nodiscard]] Tensor clamp(Arg x);
[[nodiscard]] Tensor negate(Arg x);
[[nodiscard]] Tensor absolute(Arg x);
[[nodiscard]] Tensor sign(Arg x);
[[nodiscard]] Tensor ceil(Arg x);
[[nodiscard]] Tensor reciprocal(Arg x);
[[nodiscard]] Tensor exponential(Arg x);
[[nodiscard]] Tensor logarithm(Arg x);
[[nodiscard]] Tensor sine(Arg x);
[[nodiscard]] Tensor cosine(Arg x);
/// number ** x: the number becomes a scalar on the card for the call (native/Pow.cpp, pow(Scalar, Tensor)).
[[nodiscard]] Tensor power_of_number(Arg x);

[[nodiscard]] Tensor equal(Arg a, Arg b);
[[nodiscard]] Tensor equal(Arg x);
[[nodiscard]] Tensor not_equal(Arg a, Arg b);
[[nodiscard]] Tensor not_equal(Arg x);
[[nodiscard]] Tensor less(Arg a, Arg b);
[[nodiscard]] Tensor less(Arg x);
[[nodiscard]] Tensor less_equal(Arg a, Arg b);
[[nodiscard]] Tensor less_equal(Arg x);
[[nodiscard]] Tensor greater(Arg a, Arg b);
[[nodiscard]] Tensor greater(Arg x);
[[nodiscard]] Tensor greater_equal(Arg a, Arg b);
[[nodiscard]] Tensor greater_equal(Arg x);
/// a & b, a | b, ~x
[[nodiscard]] Tensor bitwise_and(Arg a, Arg b);
[[nodiscard]] Tensor bitwise_and(Arg x);
[[nodiscard]] Tensor bitwise_or(Arg a, Arg b);
[[nodiscard]] Tensor bitwise_not(Arg x);
/// native/TensorCompare.cpp: x != x; x.abs() == inf; (x == x) * (x.abs() != inf).
[[nodiscard]] Tensor isnan(Arg x);
[[nodiscard]] Tensor isinf(Arg x);
[[nodiscard]] Tensor isfinite(Arg x);
/// torch.isin(elements, tokens) for few of them: TensorCompare.cpp, isin_default_kernel_cpu's formula on the card:
/// each element is compared with each token.
[[nodiscard]] Tensor isin(Arg elements, const Tensor& tokens);
/// torch.where(condition, a, b)
[[nodiscard]] Tensor where(Arg condition, Arg a, Arg b);
[[nodiscard]] Tensor masked_fill(Arg x, Arg mask);

// --- over dimensions
/// x.all(), x.any(): a scalar.
[[nodiscard]] Tensor all(Arg x);
[[nodiscard]] Tensor any(Arg x);
/// The same over one dimension.
[[nodiscard]] Tensor all(Arg x, int dim, bool keep_dim = false);
[[nodiscard]] Tensor any(Arg x, int dim, bool keep_dim = false);
/// x.max(); x.amax(dim, keepdim=True)
[[nodiscard]] Tensor max(Arg x);
[[nodiscard]] Tensor amax(Arg x, int dim);
/// x.min(dim, keepdim=True): the values. Their places are dropped as soon as they are found.
[[nodiscard]] Tensor min(Arg x, int dim);
[[nodiscard]] Tensor min(Arg x);
/// x.sum() of booleans or integers: int64.
[[nodiscard]] Tensor sum(Arg x);
[[nodiscard]] Tensor sum(Arg x, int dim);
[[nodiscard]] Tensor argmax_last(Arg x);
/// torch.multinomial(x, num_samples=1).squeeze(1) of probabilities [rows, kinds] (native/Distributions.cpp).
[[nodiscard]] Tensor multinomial_once(Arg x);
/// x.cumsum(dim): int64 of what is an integer.
[[nodiscard]] Tensor cumsum(Arg x, int dim);

// --- moved
/// x.to(dtype): x itself where it has that type.
[[nodiscard]] Tensor to(Arg x, DType dtype);
/// x.to(dtype, copy=True)
[[nodiscard]] Tensor copy_to(Arg x, DType dtype);
[[nodiscard]] Tensor clone(Arg x);
/// x.fill_(number)
void fill_in_place(Arg x);
[[nodiscard]] Tensor cat(Arg a, Arg b, int dim);
/// F.pad(x, (0, count)): `count` further elements along the last dimension.
[[nodiscard]] Tensor pad_last(Arg x, std::int64_t count);
[[nodiscard]] Tensor repeat(Arg x, const Shape& times);
[[nodiscard]] Tensor repeat_interleave(Arg x, std::int64_t times, int dim = 0);
/// x.gather(dim, index)
[[nodiscard]] Tensor gather(Arg x, const Tensor& index);
/// x.index_select(dim, places)
[[nodiscard]] Tensor index_select(Arg x, int dim, const Tensor& places);
/// x[:, places, …] with int64 places at some dimensions, which are broadcast against each other.
[[nodiscard]] Tensor index(const Tensor& x, std::initializer_list<std::pair<int, Tensor>> places);

// --- views
/// Of what is contiguous.
[[nodiscard]] Tensor view(Arg x, const Shape& shape);
[[nodiscard]] Tensor unsqueeze(Arg x, int dim);
[[nodiscard]] Tensor expand(Arg x, const Shape& shape);
/// x[..., start:start+length, ...]
[[nodiscard]] Tensor slice(Arg x, int dim, std::int64_t start, std::int64_t length);
/// x[:, number]: without that dimension.
[[nodiscard]] Tensor select(Arg x, int dim);

}  // namespace memcalc::no_grad
