// What the readers of config.json with DeepSeek's latent attention share.
#pragma once

#include <cstdint>

#include "memcalc/families/deepseek/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {

inline constexpr LatentAttentionSpec kLatent = {
    .q_lora_rank = 1536, .kv_lora_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .v_head_dim = 128};

/// Everything but the experts.
void read_deepseek(HfReader& config, const DecoderDefaults& usual, DeepseekSpec& spec,
                   const LatentAttentionSpec& sizes = kLatent);

/// mlp_layer_types: so many dense layers come first.
[[nodiscard]] std::int64_t leading_dense_layers(HfReader& config, std::int64_t layers, std::int64_t fallback);

}  // namespace memcalc::family
