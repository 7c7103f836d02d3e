// config.json of MiniMax-M3's text model, as transformers 5.17 reads it: models/minimax_m3_vl.
#include <optional>
#include <string>

#include "memcalc/families/minimax_m3/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

/// A number of the indexer: under its own name, or in sparse_attention_config, which goes before.
std::int64_t read_index(HfReader& config, std::string_view name, std::string_view older, std::int64_t fallback,
                        IntRange range = kSizeRange) {
  if (const std::optional<JsonObject> sparse = config.json().nullable_object("sparse_attention_config")) {
    if (const std::optional<std::int64_t> number = sparse->nullable_int(older, range)) return *number;
  }
  return config.size({name}, fallback, range);
}

void check_layers(const JsonObject& json, std::string_view key, std::size_t found, std::int64_t layers) {
  if (static_cast<std::int64_t>(found) == layers) return;
  throw json.error(key, "has " + std::to_string(found) + " entries; accepted: one for each of num_hidden_layers (" +
                            std::to_string(layers) + ")");
}

/// layer_types, else sparse_attention_config's sparse_attention_freq; else no layer is sparse.
std::vector<bool> read_sparse_layers(HfReader& config, std::int64_t layers) {
  const JsonObject& json = config.json();
  std::vector<bool> sparse(static_cast<std::size_t>(layers), false);
  const std::vector<std::string> types = json.optional_strings("layer_types");
  const std::optional<JsonObject> older = json.nullable_object("sparse_attention_config");
  if (!types.empty()) {
    check_layers(json, "layer_types", types.size(), layers);
    for (std::size_t i = 0; i < types.size(); ++i) {
      if (types[i] != "minimax_m3_sparse" && types[i] != "full_attention") {
        throw json.error("layer_types",
                         "'" + types[i] + "' is not modelled; accepted: full_attention, minimax_m3_sparse");
      }
      sparse[i] = types[i] == "minimax_m3_sparse";
    }
  } else if (older && older->has("sparse_attention_freq")) {
    const std::vector<std::int64_t> numbers = older->required_ints("sparse_attention_freq", {0, 1});
    check_layers(*older, "sparse_attention_freq", numbers.size(), layers);
    for (std::size_t i = 0; i < numbers.size(); ++i) sparse[i] = numbers[i] != 0;
  }
  return sparse;
}

/// mlp_layer_types, else moe_layer_freq; else every layer is a mixture.
std::vector<bool> read_dense(HfReader& config, std::int64_t layers) {
  const JsonObject& json = config.json();
  std::vector<bool> dense(static_cast<std::size_t>(layers), false);
  const std::vector<std::string> types = json.optional_strings("mlp_layer_types");
  if (!types.empty()) {
    check_layers(json, "mlp_layer_types", types.size(), layers);
    for (std::size_t i = 0; i < types.size(); ++i) dense[i] = types[i] == "dense";
  } else if (json.has("moe_layer_freq") && !json.is_null("moe_layer_freq")) {
    const std::vector<std::int64_t> numbers = json.required_ints("moe_layer_freq", {0, 1});
    check_layers(json, "moe_layer_freq", numbers.size(), layers);
    for (std::size_t i = 0; i < numbers.size(); ++i) dense[i] = numbers[i] == 0;
  }
  return dense;
}

Architecture minimax_m3_text(HfReader& config) {
  MiniMaxM3Spec spec;
  read_decoder(config,
               {.vocab_size = 200064,
                .hidden_size = 6144,
                .intermediate_size = 3072,
                .num_hidden_layers = 60,
                .num_attention_heads = 64,
                .num_key_value_heads = 4,
                .head_dim = 128,
                .activation_key = "",  // hidden_act is "silu" whatever the file says, and not called
                .max_position_embeddings = 524288},
               spec);
  spec.rotary_dim = rotary_dim(config, "partial_rotary_factor", 1, spec.head_dim);  // the key rotary_dim is not read
  spec.experts = read_experts(config, {"num_local_experts", "num_experts"}, 128, 4, spec.intermediate_size, spec);
  spec.dense_intermediate_size = config.size({"dense_intermediate_size"}, 12288);
  spec.shared_intermediate_size = config.size({"shared_intermediate_size"}, 3072);
  spec.index_n_heads = read_index(config, "index_n_heads", "sparse_num_index_heads", 4);
  spec.index_head_dim = read_index(config, "index_head_dim", "sparse_index_dim", 128);
  spec.index_block_size = read_index(config, "index_block_size", "sparse_block_size", 128);
  spec.index_topk_blocks = read_index(config, "index_topk_blocks", "sparse_topk_blocks", 16);
  spec.index_local_blocks = read_index(config, "index_local_blocks", "sparse_local_block", 1, {0, kSizeRange.max});
  config.divides("index_n_heads", spec.index_n_heads, "num_attention_heads", spec.num_attention_heads);
  spec.sparse_layers = read_sparse_layers(config, spec.num_hidden_layers);
  spec.dense_layers = read_dense(config, spec.num_hidden_layers);
  if (spec.index_head_dim < spec.rotary_dim) {
    throw config.json().error("index_head_dim", "found " + std::to_string(spec.index_head_dim) +
                                                    "; accepted: as many numbers as a head rotates (" +
                                                    std::to_string(spec.rotary_dim) + ") or more");
  }
  refuse_auxiliary_loss(config);
  return spec;
}

}  // namespace

const Family kMiniMaxM3Text = {
    .model_type = "minimax_m3_vl_text",
    .kind = FamilyKind::kDecoder,
    .read = minimax_m3_text,
    .build = build_minimax_m3,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
