// Rotary positions of neighbouring numbers: pairs instead of halves. GPT-J, GLM, Cohere, ERNIE 4.5.
#pragma once

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

/// x.repeat_interleave(2, dim=-1)
[[nodiscard]] inline Tensor each_twice(const Tensor& x) {
  Shape wide = x.shape();
  wide.dims[static_cast<std::size_t>(wide.rank++)] = 2;
  Shape shape = x.shape();
  shape[-1] *= 2;
  const Tensor copied = contiguous_copy(expand(unsqueeze(x, x.rank()), wide));
  return reshape(copied, shape);
}

/// torch.stack((-x2, x1), dim=-1).flatten(-2) of the even and the odd numbers of x.
[[nodiscard]] inline Tensor rotate_every_two(const Tensor& x) {
  Tensor stacked;
  {
    const Tensor x1 = every_second(x, -1), x2 = every_second(x, -1);
    Tensor negated = negate(x2);
    stacked = cat(unsqueeze(negated, -1), unsqueeze(x1, -1), -1);
  }
  return reshape(stacked, x.shape());
}

}  // namespace memcalc
