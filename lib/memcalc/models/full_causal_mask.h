// A causal mask that is there even where SDPA could be told is_causal, and one of chunks.
// MIRRORS(transformers, "masking_utils.py", "5.17.0")
#pragma once

#include <cstdint>

#include "memcalc/models/attention.h"

namespace memcalc {

/// create_causal_mask(…, allow_is_causal_skip=False). Without position_ids `past` is said to be cached: nobody looks
/// for packed sequences.
[[nodiscard]] Tensor create_full_causal_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& batch,
                                             const PastTokens& past);

/// create_chunked_causal_mask: a token sees its chunk alone, counted from the first token that is no padding.
[[nodiscard]] Tensor create_chunked_causal_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& batch,
                                                const PastTokens& past, std::int64_t chunk_size);

}  // namespace memcalc
