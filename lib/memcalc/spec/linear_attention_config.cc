// MIRRORS(transformers, "configuration_utils.py", "5.17.0")
#include "memcalc/spec/linear_attention_config.h"

#include <algorithm>

namespace memcalc::family {

std::vector<std::string> mixer_types(HfReader& config, std::string_view key, std::int64_t layers,
                                     std::initializer_list<std::string_view> others) {
  if (!config.json().has(key) || config.json().is_null(key)) return {};
  std::vector<std::string> types = config.json().optional_strings(key);
  std::string accepted = "full_attention, linear_attention";
  for (const std::string_view other : others) accepted.append(", ").append(other);
  for (std::string& type : types) {
    if (type == "mamba" || type == "conv") type = "linear_attention";
    if (type == "attention") type = "full_attention";
    const bool known = type == "full_attention" || type == "linear_attention" ||
                       std::find(others.begin(), others.end(), type) != others.end();
    if (!known) throw config.json().error(key, "'" + type + "' is not modelled; accepted: " + accepted);
  }
  if (static_cast<std::int64_t>(types.size()) != layers) {
    throw config.json().error(key, "has " + std::to_string(types.size()) +
                                       " entries; accepted: one for each of num_hidden_layers (" +
                                       std::to_string(layers) + ")");
  }
  return types;
}

std::vector<bool> linear_but_every_interval(HfReader& config, std::int64_t layers) {
  std::vector<bool> linear;
  for (const std::string& type : mixer_types(config, "layer_types", layers)) linear.push_back(type[0] == 'l');
  if (!linear.empty()) return linear;
  const std::int64_t interval = config.size({"full_attention_interval"}, 4);
  for (std::int64_t i = 0; i < layers; ++i) linear.push_back((i + 1) % interval != 0);
  return linear;
}

GatedDeltaNetSpec read_gated_delta_net(HfReader& config) {
  GatedDeltaNetSpec spec;
  spec.num_key_heads = config.size({"linear_num_key_heads"}, 16);
  spec.num_value_heads = config.size({"linear_num_value_heads"}, 32);
  spec.key_head_dim = config.size({"linear_key_head_dim"}, 128);
  spec.value_head_dim = config.size({"linear_value_head_dim"}, 128);
  spec.conv_kernel = config.size({"linear_conv_kernel_dim"}, 4);
  config.divides("linear_num_key_heads", spec.num_key_heads, "linear_num_value_heads", spec.num_value_heads);
  return spec;
}

Mamba2MixerSpec read_mamba_d(HfReader& config, std::int64_t hidden_size) {
  Mamba2MixerSpec spec;
  spec.num_heads = config.size({"mamba_n_heads"}, 128);
  const std::int64_t width = checked_multiply(config.size({"mamba_expand"}, 2), hidden_size);
  config.divides("mamba_n_heads", spec.num_heads, "mamba_expand * hidden_size", width);
  spec.head_dim = width / spec.num_heads;  // transformers takes no other mamba_d_head
  spec.state_size = config.size({"mamba_d_state"}, 256);
  spec.n_groups = config.size({"mamba_n_groups"}, 1);
  spec.conv_kernel = config.size({"mamba_d_conv"}, 4);
  spec.chunk_size = config.size({"mamba_chunk_size"}, 256);
  spec.conv_bias = config.flag("mamba_conv_bias", true);
  spec.projection_bias = config.flag("mamba_proj_bias", false);
  spec.output_bias = spec.projection_bias;
  config.divides("mamba_n_groups", spec.n_groups, "mamba_n_heads", spec.num_heads);
  return spec;
}

void assume_torch_path(HfReader& config, std::string_view packages) {
  config.assume("linear attention runs as transformers' own PyTorch code, as without the packages " +
                std::string(packages) + ": their kernels take less memory and time, and are not modelled");
}

}  // namespace memcalc::family
