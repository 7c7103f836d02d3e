#include "memcalc/spec/latent_attention_config.h"

#include <algorithm>
#include <string>
#include <vector>

namespace memcalc::family {
namespace {

std::string text(std::int64_t value) { return std::to_string(value); }

}  // namespace

void read_deepseek(HfReader& config, const DecoderDefaults& usual, DeepseekSpec& spec,
                   const LatentAttentionSpec& sizes) {
  LatentAttentionSpec& latent = spec.latent;
  latent.kv_lora_rank = config.size({"kv_lora_rank"}, sizes.kv_lora_rank);
  latent.qk_nope_head_dim = config.size({"qk_nope_head_dim"}, sizes.qk_nope_head_dim);
  latent.qk_rope_head_dim = config.size({"qk_rope_head_dim"}, sizes.qk_rope_head_dim);
  latent.v_head_dim = config.size({"v_head_dim"}, sizes.v_head_dim);
  if (!config.json().is_null("q_lora_rank")) {
    latent.q_lora_rank = config.size({"q_lora_rank"}, *sizes.q_lora_rank);
  }
  DecoderDefaults defaults = usual;
  defaults.fixed_head_dim = latent.qk_rope_head_dim;
  read_decoder(config, defaults, spec);
  if (spec.num_key_value_heads != spec.num_attention_heads) {
    throw config.json().error("num_key_value_heads", "found " + text(spec.num_key_value_heads) +
                                                         "; accepted: " + text(spec.num_attention_heads) +
                                                         " (num_attention_heads), since latent attention makes keys "
                                                         "and values for every head");
  }
  spec.attention_bias = config.flag("attention_bias", false);
  spec.yarn_positions = has_yarn_positions(config, false);
}

std::int64_t leading_dense_layers(HfReader& config, std::int64_t layers, std::int64_t fallback) {
  if (!config.json().has("mlp_layer_types") || config.json().is_null("mlp_layer_types")) {
    return fallback;
  }
  const std::vector<std::string> types = config.json().optional_strings("mlp_layer_types");
  const auto first = std::find(types.begin(), types.end(), "sparse");
  const bool dense_first = std::all_of(types.begin(), first, [](const auto& type) { return type == "dense"; }) &&
                           std::all_of(first, types.end(), [](const auto& type) { return type == "sparse"; });
  if (!dense_first || static_cast<std::int64_t>(types.size()) != layers) {
    throw config.json().error("mlp_layer_types",
                              "found another order; accepted: \"dense\" for the first layers, "
                              "\"sparse\" for the others, num_hidden_layers (" +
                                  text(layers) + ") in all");
  }
  return first - types.begin();
}

}  // namespace memcalc::family
