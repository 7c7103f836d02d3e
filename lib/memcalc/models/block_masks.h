// Causal masks of a text with images, whose tokens see all others of their image: masking_utils.py, blockwise_overlay.
#pragma once

#include "memcalc/models/attention.h"

namespace memcalc {

/// create_causal_mask(..., block_sequence_ids=ids) of `ids` [batch, tokens], negative where a token is of no block.
/// `position_ids`: in which packed sequences are looked for, where they are defined. `slides`: within a window.
[[nodiscard]] Tensor create_block_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& inputs,
                                       const Tensor& block_sequence_ids, const Tensor& position_ids,
                                       bool slides = false);

}  // namespace memcalc
