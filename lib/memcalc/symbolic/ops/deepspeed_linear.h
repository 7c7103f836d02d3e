// deepspeed/runtime/zero/linear.py: what ZeRO-3 puts in the place of F.linear (memory_efficient_linear): it saves the
// parameter itself, not a view of it, which would keep a gathered weight alive until backward.
// MIRRORS(deepspeed, "runtime/zero/linear.py", "0.19.8")
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// LinearFunctionForZeroStage3: x [..., in] times weight [out, in] transposed, plus bias [out] where defined.
[[nodiscard]] Tensor deepspeed_linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

}  // namespace memcalc
