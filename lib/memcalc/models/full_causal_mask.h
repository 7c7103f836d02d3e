// A causal mask that is there even where SDPA could be told is_causal.
// MIRRORS(transformers, "masking_utils.py", "5.17.0")
#pragma once

#include "memcalc/models/attention.h"

namespace memcalc {

/// create_causal_mask(…, allow_is_causal_skip=False) without position_ids: nobody looks for packed sequences.
[[nodiscard]] Tensor create_full_causal_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& batch,
                                             PastTokens past);

}  // namespace memcalc
