// What the readers of config.json with linear attention share: the kinds of their layers. Defaults: transformers 5.17.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/linear_attention_spec.h"

namespace memcalc::family {

/// The names of `key`, one for each layer, as remap_legacy_layer_types makes them: full_attention, linear_attention or
/// one of `others`. Empty: config.json has none.
[[nodiscard]] std::vector<std::string> mixer_types(HfReader& config, std::string_view key, std::int64_t layers,
                                                   std::initializer_list<std::string_view> others = {});
/// layer_types, else every full_attention_interval-th layer has attention: true for linear attention.
[[nodiscard]] std::vector<bool> linear_but_every_interval(HfReader& config, std::int64_t layers);

[[nodiscard]] GatedDeltaNetSpec read_gated_delta_net(HfReader& config);

/// mamba_n_heads, mamba_d_head and so on of Granite 4, Bamba and Falcon-H1.
[[nodiscard]] Mamba2MixerSpec read_mamba_d(HfReader& config, std::int64_t hidden_size);

/// The assumption that goes with such a family.
void assume_torch_path(HfReader& config, std::string_view packages);

}  // namespace memcalc::family
