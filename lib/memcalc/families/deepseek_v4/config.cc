// config.json of DeepSeek-V4, as transformers 5.17 reads it: models/deepseek_v4/configuration_deepseek_v4.py.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "memcalc/families/deepseek_v4/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

constexpr std::string_view kChosenType = "compressed_sparse_attention", kAllType = "heavily_compressed_attention";

CompressedKeys keys_of(const JsonObject& json, std::string_view key, const std::string& type) {
  if (type == "sliding_attention" || type == "0") return CompressedKeys::kNone;
  if (type == kChosenType || type == "4") return CompressedKeys::kChosen;
  if (type == kAllType || type == "128") return CompressedKeys::kAll;
  throw json.error(key, "'" + type + "' is not modelled; accepted: sliding_attention, " + std::string(kChosenType) +
                            ", " + std::string(kAllType));
}

void check_count(const JsonObject& json, std::string_view key, std::size_t found, std::int64_t layers) {
  if (static_cast<std::int64_t>(found) >= layers) return;
  throw json.error(key, "has " + std::to_string(found) + " entries; accepted: one for each of num_hidden_layers (" +
                            std::to_string(layers) + ")");
}

/// layer_types, else compress_ratios (which count the layers that predict further tokens, too), else two layers that
/// see all compressed keys, then every other one.
std::vector<CompressedKeys> read_layers(HfReader& config, std::int64_t layers) {
  const JsonObject& json = config.json();
  std::vector<CompressedKeys> kinds;
  if (const std::vector<std::string> types = json.optional_strings("layer_types"); !types.empty()) {
    check_count(json, "layer_types", types.size(), layers);
    for (const std::string& type : types) kinds.push_back(keys_of(json, "layer_types", type));
  } else if (json.has("compress_ratios") && !json.is_null("compress_ratios")) {
    const std::vector<std::int64_t> ratios = json.required_ints("compress_ratios", {0, 128});
    check_count(json, "compress_ratios", ratios.size(), layers);
    for (const std::int64_t ratio : ratios) kinds.push_back(keys_of(json, "compress_ratios", std::to_string(ratio)));
  } else {
    config.assume("layer_types = heavily_compressed_attention twice, then every other layer (default)");
    for (std::int64_t i = 0; i < layers; ++i) {
      kinds.push_back(i >= 2 && i % 2 == 1 ? CompressedKeys::kChosen : CompressedKeys::kAll);
    }
  }
  kinds.resize(static_cast<std::size_t>(layers));
  return kinds;
}

/// mlp_layer_types, else the first num_hash_layers.
std::vector<bool> read_hashed(HfReader& config, std::int64_t layers) {
  const JsonObject& json = config.json();
  std::vector<bool> hashed;
  const std::vector<std::string> types = json.optional_strings("mlp_layer_types");
  if (!types.empty()) {
    check_count(json, "mlp_layer_types", types.size(), layers);
    for (const std::string& type : types) {
      if (type != "hash_moe" && type != "moe") {
        throw json.error("mlp_layer_types", "'" + type + "' is not modelled; accepted: hash_moe, moe");
      }
      hashed.push_back(type == "hash_moe");
    }
  } else {
    const std::int64_t count = config.size({"num_hash_layers"}, 3, {0, kLayerRange.max});
    for (std::int64_t i = 0; i < layers; ++i) hashed.push_back(i < count);
  }
  hashed.resize(static_cast<std::size_t>(layers));
  return hashed;
}

std::int64_t read_rate(HfReader& config, std::string_view type, std::string_view older, std::int64_t fallback) {
  if (const std::optional<std::int64_t> rate = config.nullable_size(older)) return *rate;
  if (const std::optional<JsonObject> rates = config.json().nullable_object("compress_rates")) {
    return rates->nullable_int(type, kSizeRange).value_or(fallback);
  }
  return fallback;
}

/// Of the positions of layers with compressed keys: rope_parameters may have them apart, under "compress".
bool reads_yarn(const HfReader& config) {
  if (const std::optional<JsonObject> rope = config.json().nullable_object("rope_parameters")) {
    if (const std::optional<JsonObject> compress = rope->nullable_object("compress")) {
      return compress->nullable_string("rope_type").value_or("") == "yarn";
    }
  }
  return has_yarn_positions(config, false);
}

/// What a head rotates: partial_rotary_factor of head_dim, which older files give as qk_rope_head_dim.
std::int64_t read_rotary_dim(HfReader& config, std::int64_t head_dim) {
  const std::optional<std::int64_t> older = config.nullable_size("qk_rope_head_dim");
  const std::int64_t width = older && !config.json().nullable_double("partial_rotary_factor")
                                 ? *older
                                 : rotary_dim(config, "partial_rotary_factor", 64.0 / 512, head_dim);
  if (width >= head_dim || width % 2 != 0) {
    throw config.json().error("qk_rope_head_dim", "found " + std::to_string(width) +
                                                      "; accepted: an even number below head_dim (" +
                                                      std::to_string(head_dim) + ")");
  }
  return width;
}

Architecture deepseek_v4(HfReader& config) {
  constexpr std::array<std::string_view, 2> kScores = {"sqrtsoftplus", "sigmoid"};
  DeepseekV4Spec spec;
  const std::int64_t width = config.size({"moe_intermediate_size"}, 2048);
  read_decoder(config,
               {.vocab_size = 129280,
                .hidden_size = 4096,
                .intermediate_size = width,
                .num_hidden_layers = 43,
                .num_attention_heads = 64,
                .num_key_value_heads = 1,
                .head_dim = 512,
                .max_position_embeddings = 1048576,
                .reads_intermediate_size = false},
               spec);
  spec.experts = read_experts(config, {"n_routed_experts", "num_local_experts"}, 256, 6, width, spec);
  spec.q_lora_rank = config.size({"q_lora_rank"}, 1024);
  spec.rotary_dim = read_rotary_dim(config, spec.head_dim);
  spec.o_groups = config.size({"o_groups"}, 8);
  spec.o_lora_rank = config.size({"o_lora_rank"}, 1024);
  config.divides("o_groups", spec.o_groups, "num_attention_heads", spec.num_attention_heads);
  spec.index_n_heads = config.size({"index_n_heads"}, 64);
  spec.index_head_dim = config.size({"index_head_dim"}, 128);
  spec.index_topk = config.size({"index_topk"}, 512);
  if (spec.index_head_dim <= spec.rotary_dim) {
    throw config.json().error("index_head_dim", "found " + std::to_string(spec.index_head_dim) +
                                                    "; accepted: more than a head rotates (" +
                                                    std::to_string(spec.rotary_dim) + ")");
  }
  spec.chosen_rate = read_rate(config, kChosenType, "compress_rate_csa", 4);
  spec.all_rate = read_rate(config, kAllType, "compress_rate_hca", 128);
  spec.hc_mult = config.size({"hc_mult"}, 4, {1, 64});
  spec.hc_sinkhorn_iters = config.size({"hc_sinkhorn_iters"}, 20, {1, 1000});
  spec.layers = read_layers(config, spec.num_hidden_layers);
  spec.hashed_layers = read_hashed(config, spec.num_hidden_layers);
  spec.root_of_softplus = config.json().optional_choice("scoring_func", kScores).value_or("sqrtsoftplus") != "sigmoid";
  spec.mlp_bias = config.flag("mlp_bias", false);
  spec.yarn_positions = reads_yarn(config);
  read_window(config, spec, 128);
  if (!spec.sliding_window) {
    throw config.json().error("sliding_window", "null; accepted: a size, since every layer has a window");
  }
  refuse_auxiliary_loss(config);
  config.assume(
      "weights are of one type: from_pretrained() keeps norms, hyper-connections and compressors in float32 "
      "(_keep_in_fp32_modules), and without autocast transformers 5.17 cannot multiply the two; adapters leave "
      "o_a_proj "
      "alone, to whose output peft cannot add theirs");
  return spec;
}

}  // namespace

const Family kDeepseekV4 = {
    .model_type = "deepseek_v4",
    .kind = FamilyKind::kDecoder,
    .read = deepseek_v4,
    .build = build_deepseek_v4,
    .size_keys = with(kEncoderKeys, 5, {"moe_intermediate_size", ""}),
    .measured = kCausalLmAlone,
    .is_eager = [](const Behaviors&) { return true; },  // _supports_sdpa is False: sinks
    .dropout_is_module = false,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
