// How scripts bring a denoising network to the card; the frozen base of LoRA scripts: weights in float8, and blocks
// whose weights wait on the host until they are needed (diffusers 0.42 examples/dreambooth; kohya-ss/sd-scripts
// 48d368fa, library/custom_offloading_utils.py and flux_models.py; kohya-ss/musubi-tuner 30c658c,
// modules/custom_offloading_utils.py and fp8_optimization_utils.py; 2026). Covered by
// tests/unit/swapped_blocks_test.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

/// nn.ModuleList of equal blocks, of which the last ones begin a step on the host. A swap copies a block's weights over
/// those of another block on the card, so that no more of them are there at any time.
struct BlockList {
  std::string path;  // "transformer_blocks"
  std::int64_t blocks = 0;
  std::int64_t swapped = 0;
};

/// --blocks-to-swap of a network with these blocks ("transformer_blocks.0" …). Of two lists half of the number is of
/// the first, and a block of it counts as two of the second (FLUX.1); where the second has another share, as that share
/// (FLUX.2). Throws Error(kUnsupported) where there are no such lists, or too few blocks would stay.
[[nodiscard]] std::vector<BlockList> block_lists(const std::vector<std::string>& layer_paths, std::int64_t asked);

/// Gives a denoising network, which was built on the meta device, its weights: the scripts read it on the host and move
/// it to the card, tensor by tensor.
void load_denoiser(Tape& tape, Model& model, const RunSpec& run);

}  // namespace memcalc
