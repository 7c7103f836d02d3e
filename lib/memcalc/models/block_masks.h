// Causal masks of a text with images, whose tokens see all others of their image: masking_utils.py, blockwise_overlay.
#pragma once

#include <cstdint>

#include "memcalc/models/attention.h"

namespace memcalc {

/// Whether a window bounds the mask, and what it bounds.
enum class BlockWindow : std::uint8_t {
  kNone,
  kOfAll,     // Gemma 3's create_masks_for_vision_model: the window of causal or block
  kOfCausal,  // create_sliding_window_causal_mask(..., block_sequence_ids=ids): the window of causal, or block
};

/// create_causal_mask(..., block_sequence_ids=ids) of `ids` [batch, tokens], negative where a token is of no block.
/// `position_ids`: in which packed sequences are looked for, where they are defined.
[[nodiscard]] Tensor create_block_mask(const RunSpec& run, const Tensor& inputs_embeds, const Batch& inputs,
                                       const Tensor& block_sequence_ids, const Tensor& position_ids,
                                       BlockWindow window = BlockWindow::kNone);

}  // namespace memcalc
