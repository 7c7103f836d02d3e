// Rotary positions of neighbouring numbers: pairs instead of halves. GPT-J, GLM, Cohere, ERNIE 4.5.
#pragma once

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/repeat_interleave.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

/// x.repeat_interleave(2, dim=-1)
[[nodiscard]] inline Tensor each_twice(const Tensor& x) { return repeat_interleave(x, 2, x.rank() - 1); }

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
