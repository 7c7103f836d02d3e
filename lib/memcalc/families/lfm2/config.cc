// config.json of LFM2, as transformers 5.17 reads it: models/lfm2, models/lfm2_moe.
#include "memcalc/families/lfm2/spec.h"

#include <algorithm>

#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/linear_attention_config.h"

namespace memcalc::family {
namespace {

/// tie_embedding, or tie_word_embeddings, whose older name it is.
void read_tie(HfReader& config, Lfm2Spec& spec) {
  if (config.json().has("tie_embedding")) spec.tie_word_embeddings = config.flag("tie_embedding", true);
}

void read_convolutions(HfReader& config, Lfm2Spec& spec) {
  spec.conv_kernel = config.size({"conv_L_cache"}, 3);
  spec.conv_bias = config.flag("conv_bias", false);
  spec.yarn_positions = has_yarn_positions(config, false);
  config.assume(
      "short convolutions run as transformers' own PyTorch code, as without the package causal-conv1d, whose kernels "
      "are not modelled");
}

/// layer_types, else the layers of full_attn_idxs have attention, else all of them.
std::vector<bool> convolution_layers(HfReader& config, std::int64_t layers) {
  std::vector<bool> linear;
  for (const std::string& type : mixer_types(config, "layer_types", layers)) {
    linear.push_back(type == "linear_attention");
  }
  if (!linear.empty()) return linear;
  linear.assign(static_cast<std::size_t>(layers), false);
  if (!config.json().has("full_attn_idxs") || config.json().is_null("full_attn_idxs")) return linear;
  std::fill(linear.begin(), linear.end(), true);
  for (const std::int64_t layer : config.json().required_ints("full_attn_idxs", {0, layers - 1})) {
    linear[static_cast<std::size_t>(layer)] = false;
  }
  return linear;
}

/// Lfm2MLP: two thirds of block_ff_dim, times a factor, up to a multiple.
std::int64_t adjusted_width(HfReader& config, std::int64_t width) {
  if (!config.flag("block_auto_adjust_ff_dim", true)) return width;
  width = static_cast<std::int64_t>(static_cast<double>(2 * width) / 3);
  if (config.json().is_null("block_ffn_dim_multiplier")) return width;
  const double factor = config.json().optional_double("block_ffn_dim_multiplier", {0, 1e6}).value_or(1);
  width = static_cast<std::int64_t>(factor * static_cast<double>(width));
  const std::int64_t multiple = config.size({"block_multiple_of"}, 256);
  return multiple * ((width + multiple - 1) / multiple);
}

Architecture lfm2(HfReader& config) {
  Lfm2Spec spec;
  read_decoder(config,
               {.vocab_size = 65536,
                .hidden_size = 2560,
                .intermediate_size = 12288,
                .num_hidden_layers = 32,
                .num_attention_heads = 32,
                .num_key_value_heads = 8,
                .activation_key = "",
                .max_position_embeddings = 128000,
                .tie_word_embeddings = true},
               spec);
  spec.intermediate_size = adjusted_width(config, config.size({"block_ff_dim", "intermediate_size"}, 12288));
  read_tie(config, spec);
  read_convolutions(config, spec);
  spec.linear_layers = convolution_layers(config, spec.num_hidden_layers);
  spec.dense_layers.assign(static_cast<std::size_t>(spec.num_hidden_layers), true);
  return spec;
}

Architecture lfm2_moe(HfReader& config) {
  Lfm2MoeSpec spec;
  read_decoder(config,
               {.vocab_size = 65536,
                .hidden_size = 2048,
                .intermediate_size = 7168,
                .num_hidden_layers = 32,
                .num_attention_heads = 32,
                .num_key_value_heads = 8,
                .activation_key = "",
                .max_position_embeddings = 128000,
                .tie_word_embeddings = true},
               spec);
  read_tie(config, spec);
  read_convolutions(config, spec);
  for (const std::string& type : mixer_types(config, "layer_types", spec.num_hidden_layers)) {
    spec.linear_layers.push_back(type == "linear_attention");
  }
  if (spec.linear_layers.empty()) {
    throw config.json().error("layer_types", "missing; accepted: full_attention or conv for each layer");
  }
  spec.experts = read_experts(config, {"num_experts"}, 32, 4, config.size({"moe_intermediate_size"}, 1792), spec);
  const std::int64_t dense = config.size({"num_dense_layers"}, 2, {0, kLayerRange.max});
  for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) spec.dense_layers.push_back(i < dense);
  spec.use_expert_bias = config.flag("use_expert_bias", true);
  spec.norm_topk_prob = config.flag("norm_topk_prob", true);
  return spec;
}

}  // namespace

const Family kLfm2 = {
    .model_type = "lfm2",
    .kind = FamilyKind::kDecoder,
    .read = lfm2,
    .build = build_lfm2,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .instructions_per_operator = 70,
    .compiled_whole_alone = true,
};

const Family kLfm2Moe = {
    .model_type = "lfm2_moe",
    .kind = FamilyKind::kDecoder,
    .read = lfm2_moe,
    .build = build_lfm2,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
