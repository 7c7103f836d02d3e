// BLOOM's GELU, an autograd.Function of transformers' own. Covered by tests/measured/program_test.cc.
// MIRRORS(transformers, "models/bloom/modeling_bloom.py", "5.17.0")
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// GeLUFunction.apply(x): only x is kept, and backward computes the rest once more, operator by operator. Throws
/// Error(kUnsupported) where the call is traced.
[[nodiscard]] Tensor bloom_gelu(const Tensor& x);

}  // namespace memcalc
