// What the readers of config.json with DeepSeek's latent attention or its experts share.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "memcalc/families/deepseek/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {

inline constexpr LatentAttentionSpec kLatent = {
    .q_lora_rank = 1536, .kv_lora_rank = 512, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .v_head_dim = 128};

/// Of GLM-4.7-Flash and GLM-5, whose queries are compressed to other sizes.
[[nodiscard]] constexpr LatentAttentionSpec glm_latent(std::int64_t q_lora_rank) {
  return {.q_lora_rank = q_lora_rank,
          .kv_lora_rank = 512,
          .qk_nope_head_dim = 192,
          .qk_rope_head_dim = 64,
          .v_head_dim = 256};
}

/// Everything but the experts.
void read_deepseek(HfReader& config, const DecoderDefaults& usual, DeepseekSpec& spec,
                   const LatentAttentionSpec& sizes = kLatent);

/// mlp_layer_types: so many dense layers come first.
[[nodiscard]] std::int64_t leading_dense_layers(HfReader& config, std::int64_t layers, std::int64_t fallback);

template <typename Spec>
void take_groups(HfReader& config, std::int64_t groups, std::int64_t chosen, std::int64_t fewest, Spec& spec) {
  const ExpertGroups read = read_groups(config, groups, chosen, fewest, spec.experts);
  spec.n_group = read.n_group;
  spec.topk_group = read.topk_group;
}

/// topk_method: "greedy", or "group_limited_greedy" with its groups.
template <typename Spec>
void read_greedy_groups(HfReader& config, Spec& spec) {
  constexpr std::array<std::string_view, 2> kMethods = {"greedy", "group_limited_greedy"};
  if (config.json().optional_choice("topk_method", kMethods).value_or("greedy") != "group_limited_greedy") return;
  spec.n_group = config.json().required_int("n_group", {1, 1023});
  take_groups(config, spec.n_group, config.json().required_int("topk_group", {1, 1023}), 1, spec);
}

}  // namespace memcalc::family
