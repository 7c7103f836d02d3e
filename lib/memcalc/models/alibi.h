// Attention with linear biases: what Bloom and Falcon add to their scores in the place of positions.
// MIRRORS(transformers, "models/bloom/modeling_bloom.py", "5.17.0")
// MIRRORS(transformers, "models/falcon/modeling_falcon.py", "5.17.0")
#pragma once

#include <cstdint>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// build_alibi_tensor: [batch * heads, 1, tokens] in `dtype` of a mask [batch, tokens]. `slopes`: the type in which the
/// slopes of the heads meet the places of the tokens.
[[nodiscard]] Tensor build_alibi_tensor(const Tensor& attention_mask, std::int64_t heads, DType slopes, DType dtype);

}  // namespace memcalc
