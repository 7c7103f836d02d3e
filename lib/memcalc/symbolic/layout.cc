#include "memcalc/symbolic/layout.h"

#include <algorithm>
#include <array>

namespace memcalc {

Shape contiguous_strides(const Shape& shape) {
  Shape strides;
  strides.rank = shape.rank;
  std::int64_t step = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    strides[i] = step;
    step = checked_multiply(step, std::max<std::int64_t>(shape[i], 1));
  }
  return strides;
}

bool is_contiguous(const Shape& shape, const Shape& strides) {
  std::int64_t step = 1;
  for (int i = shape.rank - 1; i >= 0; --i) {
    if (shape[i] == 1) continue;
    if (strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

bool is_dense(const Shape& shape, const Shape& strides) {
  if (is_contiguous(shape, strides)) return true;
  std::array<int, kMaxDims> order{};
  int count = 0;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] != 1) order[static_cast<std::size_t>(count++)] = i;
  }
  std::sort(order.begin(), order.begin() + count, [&](int a, int b) { return strides[a] < strides[b]; });
  std::int64_t step = 1;
  for (int j = 0; j < count; ++j) {
    const int i = order[static_cast<std::size_t>(j)];
    if (strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

namespace {

/// ATen/TensorUtils.cpp, computeStride_impl: a tensor without elements has strides as if it were resized.
std::optional<Shape> view_of_nothing(const Shape& shape, const Shape& strides, const Shape& target) {
  if (shape.elements() != 0) return std::nullopt;
  return shape == target ? strides : contiguous_strides(target);
}

}  // namespace

std::optional<Shape> view_strides(const Shape& shape, const Shape& strides, const Shape& target) {
  Shape result;
  result.rank = target.rank;
  int view_dim = target.rank - 1;
  std::int64_t chunk_base_stride = shape.rank > 0 ? strides[-1] : 1;
  std::int64_t tensor_elements = 1;
  std::int64_t view_elements = 1;
  if (shape.rank == 0) return contiguous_strides(target);
  for (int dim = shape.rank - 1; dim >= 0; --dim) {
    tensor_elements *= shape[dim];
    // A chunk ends where the next outer dimension does not continue it in memory.
    const bool chunk_ends =
        dim == 0 || (shape[dim - 1] != 1 && strides[dim - 1] != tensor_elements * chunk_base_stride);
    if (!chunk_ends) continue;
    while (view_dim >= 0 && (view_elements < tensor_elements || target[view_dim] == 1)) {
      result[view_dim] = view_elements * chunk_base_stride;
      view_elements *= target[view_dim];
      --view_dim;
    }
    if (view_elements != tensor_elements) return view_of_nothing(shape, strides, target);
    if (dim > 0) {
      chunk_base_stride = strides[dim - 1];
      tensor_elements = 1;
      view_elements = 1;
    }
  }
  if (view_dim != -1) return view_of_nothing(shape, strides, target);
  return result;
}

namespace {

/// Row-major strides over the dimensions sorted by stride, innermost first, by the insertion sort of TensorIterator
/// (infer_dense_strides uses the same): `compare(a, b)` is negative where a comes first, 0 where nothing tells them
/// apart. It is not a strict order, so the algorithm is part of the result.
template <typename Compare>
Shape sorted_strides(const Shape& shape, const Compare& compare) {
  std::array<std::size_t, kMaxDims> order{};
  const auto rank = static_cast<std::size_t>(shape.rank);
  for (std::size_t i = 0; i < rank; ++i) order[i] = rank - 1 - i;
  for (std::size_t i = 1; i < rank; ++i) {
    std::size_t moving = i;
    for (std::size_t inner = i; inner-- > 0;) {
      const int comparison = compare(static_cast<int>(order[inner]), static_cast<int>(order[moving]));
      if (comparison < 0) break;
      if (comparison == 0) continue;
      std::swap(order[inner], order[moving]);
      moving = inner;
    }
  }
  Shape strides;
  strides.rank = shape.rank;
  std::int64_t step = 1;
  for (std::size_t j = 0; j < rank; ++j) {
    const auto dim = static_cast<int>(order[j]);
    strides[dim] = step;
    step *= std::max<std::int64_t>(shape[dim], 1);
  }
  return strides;
}

/// Strides of 0 (expanded dimensions) tell nothing; equal strides are told apart by size, which only ever moves the
/// larger dimension outwards. 0: look at the next operand.
int compare_dims(std::int64_t stride0, std::int64_t stride1, std::int64_t size0, std::int64_t size1) {
  if (stride0 == 0 || stride1 == 0) return 0;
  if (stride0 != stride1) return stride0 < stride1 ? -1 : 1;
  return size0 > size1 ? 1 : 0;
}

}  // namespace

Shape like_strides(const Shape& shape, const Shape& strides) {
  if (is_dense(shape, strides)) return strides;
  return sorted_strides(shape, [&](int a, int b) { return compare_dims(strides[a], strides[b], shape[a], shape[b]); });
}

bool is_turned(const Shape& shape, const Shape& result, const Shape& input) {
  bool apart = false, beside = false;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape[i] <= 1) continue;
    if (result[i] == 1) {
      apart = input[i] > 1;
    } else if (input[i] == 1) {
      beside = true;
    }
  }
  return apart && beside;
}

Shape broadcast_shapes(const Shape& a, const Shape& b) {
  Shape result;
  result.rank = std::max(a.rank, b.rank);
  for (int i = 1; i <= result.rank; ++i) {
    const std::int64_t da = i <= a.rank ? a[a.rank - i] : 1;
    const std::int64_t db = i <= b.rank ? b[b.rank - i] : 1;
    if (da != db && da != 1 && db != 1) throw Error(ErrorCode::kInternal, "operands do not broadcast");
    result[result.rank - i] = da == 1 ? db : da;
  }
  return result;
}

Shape elementwise_strides(const Shape& result, const Tensor* const* inputs, int count) {
  // Operands of the result's shape that are all row-major, or all dense with the same strides, hand their layout on.
  const Tensor& first = *inputs[0];
  bool whole = true, same = true, contiguous = first.is_contiguous();
  for (int k = 0; k < count && whole; ++k) {
    const Tensor& input = *inputs[k];
    whole = input.shape() == result;
    if (!whole || k == 0 || input.strides() == first.strides()) continue;
    same = false;
    contiguous = contiguous && input.is_contiguous();
  }
  if (whole && contiguous) return contiguous_strides(result);
  if (whole && same && is_dense(first.shape(), first.strides())) return first.strides();

  // Else the first operand that tells two dimensions apart decides.
  const auto stride_of = [&](const Tensor& input, int dim) -> std::int64_t {
    const int own = dim - (result.rank - input.rank());
    if (own < 0) return 0;
    return input.shape()[own] == 1 && result[dim] != 1 ? 0 : input.strides()[own];
  };
  return sorted_strides(result, [&](int a, int b) {
    for (int k = 0; k < count; ++k) {
      const Tensor& input = *inputs[k];
      const int comparison = compare_dims(stride_of(input, a), stride_of(input, b), result[a], result[b]);
      if (comparison != 0) return comparison;
    }
    return 0;
  });
}

}  // namespace memcalc
