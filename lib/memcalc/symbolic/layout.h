// Strides: when is a reshape a view, and how does PyTorch lay out an operator's result. They decide where a copy is
// made, so they decide memory. Covered by tests/unit/layout_test.cc.
#pragma once

#include <optional>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// Row-major strides.
[[nodiscard]] Shape contiguous_strides(const Shape& shape);

[[nodiscard]] bool is_contiguous(const Shape& shape, const Shape& strides);

/// True where the elements fill their storage without gaps in some order of dimensions.
[[nodiscard]] bool is_dense(const Shape& shape, const Shape& strides);

/// Strides under which `target` is a view of a tensor of `shape` and `strides`; nothing where a copy is needed
/// (ATen/TensorUtils.cpp, computeStride).
[[nodiscard]] std::optional<Shape> view_strides(const Shape& shape, const Shape& strides, const Shape& target);

/// Dense strides in the dimension order of `strides` (empty_like with torch.preserve_format); `strides` itself where
/// already dense (ATen/native/ExpandUtils, infer_dense_strides).
[[nodiscard]] Shape like_strides(const Shape& shape, const Shape& strides);

/// True where elements that lie side by side in `result` do not in `input`, though others do there: a copy of one to
/// the other turns a matrix over. Pre: of one shape, but for dimensions of one element.
[[nodiscard]] bool is_turned(const Shape& shape, const Shape& result, const Shape& input);

/// numpy broadcasting. Throws Error(kInternal) where shapes do not match.
[[nodiscard]] Shape broadcast_shapes(const Shape& a, const Shape& b);

/// Strides of an element-wise operator's result (ATen/TensorIterator.cpp, reorder_dimensions: dimensions sorted by
/// stride, the first operand that tells two dimensions apart decides).
[[nodiscard]] Shape elementwise_strides(const Shape& result, const Tensor* const* inputs, int count);

/// How many windows of a kernel fit along a side: 0 where it is larger than the side with its padding.
[[nodiscard]] constexpr std::int64_t window_count(std::int64_t size, std::int64_t kernel, std::int64_t stride,
                                                  std::int64_t padding) {
  const std::int64_t reach = size + 2 * padding - kernel;
  return reach < 0 ? 0 : reach / stride + 1;
}

}  // namespace memcalc
