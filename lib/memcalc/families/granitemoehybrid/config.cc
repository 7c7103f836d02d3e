// config.json of Granite 4's hybrids, as transformers 5.17 reads it: models/granitemoehybrid.
#include <string>

#include "memcalc/families/granitemoehybrid/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/linear_attention_config.h"

namespace memcalc::family {
namespace {

void read_hybrid(HfReader& config, GraniteHybridSpec& spec) {
  read_decoder(config, {.intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.has_positions = config.json().nullable_string("position_embedding_type") == "rope";
  spec.yarn_positions = has_yarn_positions(config, false);
  spec.shared_intermediate_size = config.size({"shared_intermediate_size"}, 1024);
  const char* const key = config.json().has("layer_types") ? "layer_types" : "layers_block_type";
  for (const std::string& type : mixer_types(config, key, spec.num_hidden_layers)) {
    spec.linear_layers.push_back(type == "linear_attention");
  }
  if (spec.linear_layers.empty()) spec.linear_layers.assign(static_cast<std::size_t>(spec.num_hidden_layers), true);
  spec.mamba = read_mamba_d(config, spec.hidden_size);
  assume_torch_path(config, "mamba-ssm and causal-conv1d");
}

Architecture granitemoehybrid(HfReader& config) {
  refuse_auxiliary_loss(config);
  constexpr std::int64_t kExperts = 8;
  if (config.json().nullable_int("num_local_experts", {0, kSizeRange.max}).value_or(kExperts) == 0) {
    GraniteHybridSpec spec;
    read_hybrid(config, spec);
    spec.dense_layers.assign(static_cast<std::size_t>(spec.num_hidden_layers), true);
    return spec;
  }
  GraniteMoeHybridSpec spec;
  read_hybrid(config, spec);
  spec.experts = read_experts(config, {"num_local_experts"}, kExperts, 2, spec.intermediate_size, spec);
  return spec;
}

}  // namespace

const Family kGraniteMoeHybrid = {
    .model_type = "granitemoehybrid",
    .kind = FamilyKind::kDecoder,
    .read = granitemoehybrid,
    .build = build_granitemoehybrid,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
