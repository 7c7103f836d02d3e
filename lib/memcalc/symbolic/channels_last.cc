#include "memcalc/symbolic/channels_last.h"

#include <algorithm>

#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

Shape channels_last_strides(const Shape& shape) {
  if (shape.rank != 4 && shape.rank != 5) return contiguous_strides(shape);
  Shape strides = shape;
  std::int64_t step = shape[1];
  strides[1] = 1;
  for (int i = shape.rank - 1; i >= 2; --i) {
    strides[i] = step;
    step = checked_multiply(step, shape[i]);
  }
  strides[0] = step;
  return strides;
}

bool is_channels_last(const Tensor& x) {
  const Shape& shape = x.shape();
  const Shape& strides = x.strides();
  if ((shape.rank != 4 && shape.rank != 5) || strides[1] == 0) return false;
  std::int64_t least = 0;
  const auto goes_on = [&](int dim) {
    if (shape[dim] == 0 || strides[dim] < least) return false;
    // [N, 1, 1, 1] and row-major [N, 1, 1, W] are both; they count as row-major.
    if (dim == 0 && least == strides[1]) return false;
    least = strides[dim] * std::max<std::int64_t>(shape[dim], 1);
    return true;
  };
  if (!goes_on(1)) return false;
  for (int dim = shape.rank - 1; dim >= 2; --dim) {
    if (!goes_on(dim)) return false;
  }
  return goes_on(0);
}

Tensor in_layout(const Tensor& x, bool channels_last, const Operator& op) {
  const Shape strides = channels_last ? channels_last_strides(x.shape()) : contiguous_strides(x.shape());
  bool same = true;
  for (int i = 0; i < x.rank(); ++i) same = same && (x.size(i) == 1 || x.strides()[i] == strides[i]);
  return same ? x : x.tape().empty_strided(x.shape(), strides, x.dtype(), op);
}

Tensor empty_in_layout(Tape& tape, const Shape& shape, DType dtype, bool channels_last, const Operator& op) {
  return tape.empty_strided(shape, channels_last ? channels_last_strides(shape) : contiguous_strides(shape), dtype, op);
}

Tensor empty_of_parts(std::span<const Tensor* const> parts, const Shape& shape, DType dtype, const Operator& op) {
  const bool channels_last =
      std::all_of(parts.begin(), parts.end(), [](const Tensor* each) { return is_channels_last(*each); });
  return empty_in_layout((*parts.begin())->tape(), shape, dtype, channels_last, op);
}

}  // namespace memcalc
