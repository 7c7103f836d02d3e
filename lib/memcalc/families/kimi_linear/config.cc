// config.json of Kimi-Linear, as transformers 5.17 reads it: models/kimi_linear.
#include <optional>
#include <string>

#include "memcalc/families/kimi_linear/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

/// layer_types, else linear_attn_config's lists, which count from one, else every fourth layer is no linear one.
std::vector<bool> read_linear_layers(HfReader& config, const std::optional<JsonObject>& linear, std::int64_t layers) {
  const JsonObject& json = config.json();
  std::vector<bool> result;
  if (const std::vector<std::string> types = json.optional_strings("layer_types"); !types.empty()) {
    for (const std::string& type : types) {
      if (type != "linear_attention" && type != "full_attention") {
        throw json.error("layer_types", "'" + type + "' is not modelled; accepted: full_attention, linear_attention");
      }
      result.push_back(type == "linear_attention");
    }
  } else if (linear && linear->has("full_attn_layers") && linear->has("kda_layers")) {
    result.assign(static_cast<std::size_t>(layers), true);
    for (const std::int64_t layer : linear->required_ints("full_attn_layers", {1, layers})) {
      result[static_cast<std::size_t>(layer - 1)] = false;
    }
  } else {
    for (std::int64_t i = 0; i < layers; ++i) result.push_back(i == 0 || i % 4 != 0);
  }
  if (static_cast<std::int64_t>(result.size()) != layers) {
    throw json.error("layer_types", "has " + std::to_string(result.size()) +
                                        " entries; accepted: one for each of num_hidden_layers (" +
                                        std::to_string(layers) + ")");
  }
  return result;
}

std::vector<bool> read_dense(HfReader& config, std::int64_t layers) {
  std::vector<bool> dense;
  const std::vector<std::string> types = config.json().optional_strings("mlp_layer_types");
  const std::int64_t first = types.empty() ? config.size({"first_k_dense_replace"}, 1, {0, kLayerRange.max}) : layers;
  for (std::int64_t i = 0; i < layers; ++i) {
    const auto place = static_cast<std::size_t>(i);
    dense.push_back(types.empty() ? i < first : place < types.size() && types[place] == "dense");
  }
  return dense;
}

Architecture kimi_linear(HfReader& config) {
  const std::optional<JsonObject> linear = config.json().nullable_object("linear_attn_config");
  const auto of_linear = [&](std::string_view key, std::string_view own, std::int64_t fallback) {
    if (linear && linear->has(key)) return linear->required_int(key, kSizeRange);
    return config.size({own}, fallback);
  };
  KimiLinearSpec spec;
  spec.latent.q_lora_rank = config.nullable_size("q_lora_rank");
  spec.latent.kv_lora_rank = config.size({"kv_lora_rank"}, 512);
  spec.latent.qk_nope_head_dim = config.size({"qk_nope_head_dim"}, 128);
  spec.latent.qk_rope_head_dim = config.size({"qk_rope_head_dim"}, 64);
  spec.latent.v_head_dim = config.size({"v_head_dim"}, 128);
  read_decoder(config,
               {.vocab_size = 163840,
                .hidden_size = 2304,
                .intermediate_size = 9216,
                .num_hidden_layers = 27,
                .num_attention_heads = 32,
                .fixed_head_dim = spec.latent.qk_rope_head_dim,
                .max_position_embeddings = 1048576},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 1024);
  spec.experts.count = config.size({"num_experts", "num_local_experts"}, 256, {1, 1023});
  spec.experts.per_token = config.size({"num_experts_per_token", "num_experts_per_tok"}, 8, {1, spec.experts.count});
  spec.experts.intermediate_size = width;
  spec.n_shared_experts = config.size({"num_shared_experts", "n_shared_experts"}, 1);
  spec.n_group = config.size({"num_expert_group", "n_group"}, 1, {1, spec.experts.count});
  spec.topk_group = config.size({"topk_group"}, 1, {1, spec.n_group});
  config.divides("num_expert_group", spec.n_group, "num_experts", spec.experts.count);
  spec.norm_topk_prob =
      config.json().has("moe_renormalize") ? config.flag("moe_renormalize", true) : config.flag("norm_topk_prob", true);
  spec.linear_num_heads = of_linear("num_heads", "linear_num_heads", 32);
  spec.linear_head_dim = of_linear("head_dim", "linear_head_dim", 128);
  spec.linear_conv_kernel_dim = of_linear("short_conv_kernel_size", "linear_conv_kernel_dim", 4);
  spec.linear_layers = read_linear_layers(config, linear, spec.num_hidden_layers);
  spec.dense_layers = read_dense(config, spec.num_hidden_layers);
  config.only_flag("mla_use_output_gate", false);  // of Kimi K3, which has the same model_type on the hub
  config.only_absent("attn_res_block_size");
  config.only_absent("routed_expert_hidden_size");
  config.assume("linear attention runs as transformers' own code, in chunks (flash-linear-attention is not installed)");
  return spec;
}

}  // namespace

const Family kKimiLinear = {
    .model_type = "kimi_linear",
    .kind = FamilyKind::kDecoder,
    .read = kimi_linear,
    .build = build_kimi_linear,
    .size_keys = with(kEncoderKeys, 2, {"num_attention_heads", ""}),
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .has_latent_attention = true,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
