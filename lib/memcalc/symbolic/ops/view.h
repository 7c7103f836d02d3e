// Views and copies: operators that move no number, or only move.
#pragma once

#include <array>
#include <initializer_list>
#include <span>
#include <utility>
#include <vector>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

struct TransposePayload {
  Shape input;
  int dim0 = 0, dim1 = 0;  // which change places
};

struct PermutePayload {
  Shape input;
  std::array<int, kMaxDims> places{};  // where each dimension of the input is in the result
};

/// Throws Error(kInternal) where the strides do not allow a view. One size may be -1.
[[nodiscard]] Tensor view(Arg x, Shape shape);
/// A view where the strides allow one, else a copy.
[[nodiscard]] Tensor reshape(Arg x, Shape shape);
/// The view that at::matmul ends with: no autograd tracking of aliasing, its own backward node.
[[nodiscard]] Tensor unsafe_view(Arg x, const Shape& shape);
[[nodiscard]] Tensor transpose(Arg x, int dim0, int dim1);
/// Matrix transpose, x.t().
[[nodiscard]] Tensor t(Arg x);
/// Broadcasts without copying; -1 keeps a size.
[[nodiscard]] Tensor expand(Arg x, Shape shape);
[[nodiscard]] Tensor unsqueeze(Arg x, int dim);
/// x[..., start:start+length, ...]; with a `step`, `length` elements that lie so far apart.
[[nodiscard]] Tensor slice(Arg x, int dim, std::int64_t start, std::int64_t length, std::int64_t step = 1);
/// x[..., -size:, ...]: all of a dimension, but Python's indexing only skips the slice where it is written from 0 on.
[[nodiscard]] Tensor slice_whole(Arg x, int dim);
/// What x[:] of these dimensions does within a tuple of indices: nothing, or, in torch before 2.9, a slice of each
/// (ATen/TensorIndexing.h, applySlice).
[[nodiscard]] Tensor open_slices(Tensor x, std::initializer_list<int> dims);
/// x[:, index]: drops `dim`.
[[nodiscard]] Tensor select(Arg x, int dim);
/// Equal parts along `dim`; the backward is one cat.
[[nodiscard]] std::vector<Tensor> split(Arg x, int dim, int parts);
/// Three parts of these sizes along `dim`.
[[nodiscard]] std::vector<Tensor> split(Arg x, int dim, const std::array<std::int64_t, 3>& sizes);
/// Parts of these sizes along `dim`: SplitWithSizesBackward0.
[[nodiscard]] std::vector<Tensor> split_with_sizes(const Tensor& x, int dim, std::span<const std::int64_t> sizes);
/// x.unbind(dim): parts without that dimension; the backward is one stack.
[[nodiscard]] std::vector<Tensor> unbind(const Tensor& x, int dim);
/// Two parts along the last dimension, `first` and the rest.
[[nodiscard]] std::pair<Tensor, Tensor> split_last(const Tensor& x, std::int64_t first);
/// x.squeeze(dim) of a dimension of size 1.
[[nodiscard]] Tensor squeeze(Arg x, int dim);
[[nodiscard]] Tensor clone(Arg x);
/// nn.Parameter(x): a leaf on the storage of `x` that requires a gradient.
[[nodiscard]] Tensor new_parameter(const Tensor& x);
/// Row-major copy, even of what is contiguous: x.clone(memory_format=torch.contiguous_format).
[[nodiscard]] Tensor contiguous_copy(Arg x);
/// Row-major copy; x itself where it is contiguous.
[[nodiscard]] Tensor contiguous(Arg x);
/// torch.cat of two, of three.
[[nodiscard]] Tensor cat(Arg a, Arg b, int dim);
[[nodiscard]] Tensor cat3(const Tensor& a, const Tensor& b, const Tensor& c, int dim);
/// torch.cat of four equal parts.
[[nodiscard]] Tensor cat4(const std::array<Tensor, 4>& parts, int dim);
/// x[..., start::2, ...]
[[nodiscard]] Tensor every_second(Arg x, int dim);
/// x.permute(order)
[[nodiscard]] Tensor permute(Arg x, std::span<const int> order);
[[nodiscard]] inline Tensor permute(Arg x, std::initializer_list<int> order) {
  return permute(std::move(x), std::span<const int>(order.begin(), order.size()));
}
/// torch.cat([empty, x]) with an empty tensor of `dtype`: the copy that DynamicCache.update makes at its first call.
[[nodiscard]] Tensor cat_with_empty(Arg x, DType dtype);

}  // namespace memcalc
