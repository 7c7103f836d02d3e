// MiniMax-M3's text model: transformers models/minimax_m3_vl.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/family.h"

namespace memcalc {

/// MiniMax-M3 (models/minimax_m3_vl, its text): queries of some layers attend to the blocks of keys that an indexer
/// chooses; experts and dense layers have clamped gates. Of ExpertsSpec the width is intermediate_size.
struct MiniMaxM3Spec : RotaryDecoderSpec {
  ExpertsSpec experts;
  std::int64_t dense_intermediate_size = 0;
  std::int64_t shared_intermediate_size = 0;
  std::int64_t rotary_dim = 0;  // of a head, the first numbers
  std::int64_t index_n_heads = 0;
  std::int64_t index_head_dim = 0;
  std::int64_t index_block_size = 0;    // keys to a block
  std::int64_t index_topk_blocks = 0;   // of each query
  std::int64_t index_local_blocks = 0;  // that it always sees
  std::vector<bool> sparse_layers;      // whose attention is
  std::vector<bool> dense_layers;       // whose MLP is
};

BuildFamily build_minimax_m3;

namespace family {
extern const Family kMiniMaxM3Text;
}  // namespace family

}  // namespace memcalc
