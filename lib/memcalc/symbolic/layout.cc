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
    if (view_elements != tensor_elements) return std::nullopt;
    if (dim > 0) {
      chunk_base_stride = strides[dim - 1];
      tensor_elements = 1;
      view_elements = 1;
    }
  }
  if (view_dim != -1) return std::nullopt;
  return result;
}

Shape like_strides(const Shape& shape, const Shape& strides) {
  if (is_dense(shape, strides)) return strides;
  std::array<int, kMaxDims> order{};
  for (int i = 0; i < shape.rank; ++i) {
    // An expanded dimension overlaps in memory; its copy is row-major.
    if (strides[i] == 0 && shape[i] != 1) return contiguous_strides(shape);
    order[static_cast<std::size_t>(i)] = shape.rank - 1 - i;
  }
  std::stable_sort(order.begin(), order.begin() + shape.rank, [&](int a, int b) {
    if (shape[a] == 1 || shape[b] == 1) return false;
    return strides[a] < strides[b];
  });
  Shape result;
  result.rank = shape.rank;
  std::int64_t step = 1;
  for (int j = 0; j < shape.rank; ++j) {
    const int i = order[static_cast<std::size_t>(j)];
    result[i] = step;
    step *= std::max<std::int64_t>(shape[i], 1);
  }
  return result;
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
  // Fast path: all operands have the result's shape and the same dense strides.
  const Tensor& first = *inputs[0];
  bool same = first.shape() == result && is_dense(result, first.strides());
  for (int k = 1; same && k < count; ++k) {
    same = inputs[k]->shape() == result && inputs[k]->strides() == first.strides();
  }
  if (same) return first.strides();

  // Insertion sort of dimensions, innermost first, exactly as TensorIterator does it: the comparison is not a
  // strict order, so the algorithm is part of the result.
  const auto stride_of = [&](int k, int dim) -> std::int64_t {
    const Tensor& t = *inputs[k];
    const int own = dim - (result.rank - t.rank());
    if (own < 0) return 0;
    return t.shape()[own] == 1 && result[dim] != 1 ? 0 : t.strides()[own];
  };
  std::array<int, kMaxDims> order{};
  for (int i = 0; i < result.rank; ++i) order[static_cast<std::size_t>(i)] = result.rank - 1 - i;
  const auto should_swap = [&](int dim0, int dim1) {
    for (int k = 0; k < count; ++k) {
      const std::int64_t s0 = stride_of(k, dim0);
      const std::int64_t s1 = stride_of(k, dim1);
      if (s0 == 0 || s1 == 0) continue;
      if (s0 < s1) return -1;
      if (s0 > s1) return 1;
      if (result[dim0] > result[dim1]) return 1;
    }
    return 0;
  };
  for (int i = 1; i < result.rank; ++i) {
    int dim1 = i;
    for (int dim0 = i - 1; dim0 >= 0; --dim0) {
      const int comparison =
          should_swap(order[static_cast<std::size_t>(dim0)], order[static_cast<std::size_t>(dim1)]);
      if (comparison > 0) {
        std::swap(order[static_cast<std::size_t>(dim0)], order[static_cast<std::size_t>(dim1)]);
        dim1 = dim0;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  Shape strides;
  strides.rank = result.rank;
  std::int64_t step = 1;
  for (int j = 0; j < result.rank; ++j) {
    const int dim = order[static_cast<std::size_t>(j)];
    strides[dim] = step;
    step *= std::max<std::int64_t>(result[dim], 1);
  }
  return strides;
}

}  // namespace memcalc
