// What the readers of decoders' config.json share: families/*/config.cc. Fallbacks are the defaults of
// transformers 5.17 (models/*/configuration_*.py).
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "memcalc/spec/decoder_spec.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {

/// What the rotary decoders share; the fallbacks that differ.
struct DecoderDefaults {
  std::int64_t vocab_size = 32000;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 32;
  std::int64_t num_attention_heads = 32;
  std::optional<std::int64_t> num_key_value_heads;  // absent: as many as attention heads
  std::optional<std::int64_t> head_dim;             // absent: hidden_size / num_attention_heads
  std::optional<std::int64_t> fixed_head_dim;       // whatever config.json says
  std::string_view activation_key = "hidden_act";
  std::string_view activation = "silu";
  std::int64_t max_position_embeddings = 0;
  bool tie_word_embeddings = false;
  double attention_dropout = 0;
  bool reads_intermediate_size = true;  // else the family does: config.json may have one for each layer
};

void read_decoder(HfReader& config, const DecoderDefaults& defaults, RotaryDecoderSpec& spec);

/// layer_types, true for sliding ones, where config.json has them; else nothing.
[[nodiscard]] std::vector<bool> layer_types(HfReader& config, std::int64_t layers);

/// Every layer but each `pattern`-th is sliding.
[[nodiscard]] std::vector<bool> sliding_but_every(std::int64_t pattern, std::int64_t layers);

/// sliding_window, unless it is null.
void read_window(HfReader& config, RotaryDecoderSpec& spec, std::int64_t fallback = 4096);

/// Of partial_rotary_factor, under its own name or in rope_parameters; int(head_dim * factor) as in the rotary modules.
[[nodiscard]] std::int64_t rotary_dim(HfReader& config, std::string_view key, double fallback, std::int64_t head_dim);

/// rope_type "yarn" of rope_parameters, or of its older name rope_scaling, where that may be called type.
[[nodiscard]] bool has_yarn_positions(const HfReader& config, bool fallback);

/// Experts under the first of `count_names` that is there. `intermediate_size`: of one expert.
[[nodiscard]] ExpertsSpec read_experts(HfReader& config, std::initializer_list<std::string_view> count_names,
                                       std::int64_t count, std::int64_t per_token, std::int64_t intermediate_size,
                                       const RotaryDecoderSpec& spec);

/// Of a mixture's layers those that are dense all the same: mlp_only_layers, and all but each decoder_sparse_step-th.
[[nodiscard]] std::vector<bool> read_dense_layers(HfReader& config, std::int64_t layers);

/// n_group groups of experts, of which a token takes topk_group; each has `fewest` experts or more.
struct ExpertGroups {
  std::int64_t n_group = 0, topk_group = 0;
};
[[nodiscard]] ExpertGroups read_groups(HfReader& config, std::int64_t groups, std::int64_t chosen, std::int64_t fewest,
                                       const ExpertsSpec& experts);

/// The router's auxiliary loss is off by default, and not modelled.
void refuse_auxiliary_loss(const HfReader& config);
void refuse_router_noise(const HfReader& config);

/// Whether a number that caps logits is there and above 0.
[[nodiscard]] bool capped(const HfReader& config, std::string_view key, bool fallback);

}  // namespace memcalc::family
