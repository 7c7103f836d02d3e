// MIRRORS(torch, "TensorShape.cpp", "2.11.0")
#include "memcalc/symbolic/ops/repeat_interleave.h"

#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

// repeat_interleave_symint with a number: unsqueeze, expand, clone, flatten.
Tensor repeat_interleave(const Tensor& x, std::int64_t times, int dim) {
  Shape wide;
  for (int i = 0; i < x.rank(); ++i) {
    wide.dims[static_cast<std::size_t>(wide.rank++)] = x.size(i);
    if (i == dim) wide.dims[static_cast<std::size_t>(wide.rank++)] = times;
  }
  Shape shape = x.shape();
  shape[dim] *= times;
  const Tensor copied = contiguous_copy(expand(unsqueeze(x, dim + 1), wide));
  return reshape(copied, shape);
}

}  // namespace memcalc
