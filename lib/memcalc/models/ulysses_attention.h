// UlyssesSPAttentionHF, which DeepSpeed puts in the place of an attention function of transformers (deepspeed 0.19.8,
// deepspeed/runtime/sequence_parallel/ulysses_sp.py): each rank has a part of every sequence; attention runs over whole
// sequences of a part of the heads. Covered by tests/unit/ulysses_test.cc and tests/measured/parallel_rows_test.cc.
// MIRRORS(deepspeed, "runtime/sequence_parallel/ulysses_sp.py", "0.19.8")
#pragma once

#include <functional>

#include "memcalc/models/attention.h"

namespace memcalc {

/// attn(query, key, value) of transformers, without a mask.
using AttentionFunction = std::function<AttentionResult(const Tensor&, const Tensor&, const Tensor&)>;

/// query [B, Hq, S / ranks, D], key and value [B, Hkv, S / ranks, D] -> [B, S / ranks, Hq * D].
[[nodiscard]] AttentionResult ulysses_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                                std::int64_t ranks, const AttentionFunction& attend);

}  // namespace memcalc
