// apply_rotary_pos_emb_interleave of DeepSeek-V3 and V3.2: neighbours are rotated.
// MIRRORS(transformers, "models/deepseek_v3/modeling_deepseek_v3.py", "5.17.0")
#pragma once

#include "memcalc/models/rotary_decoder.h"

namespace memcalc {

/// `heads`: the dimension of query and key that counts heads.
void rotate_interleaved(Tensor& query, Tensor& key, const RotaryPositions& positions, int heads);

}  // namespace memcalc
