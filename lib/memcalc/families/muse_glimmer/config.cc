// config.json of Muse Glimmer's text model, as transformers 5.17 reads it: models/muse_glimmer.
#include <string>

#include "memcalc/families/muse_glimmer/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

/// layer_rope_theta: 0 where a layer has no positions.
std::vector<bool> read_rotating_layers(HfReader& config, const std::vector<bool>& fallback) {
  constexpr std::string_view kKey = "layer_rope_theta";
  if (!config.json().has(kKey) || config.json().is_null(kKey)) return fallback;
  std::vector<bool> rotating;
  for (const std::int64_t theta : config.json().required_ints(kKey, {0, std::int64_t{1} << 40U})) {
    rotating.push_back(theta != 0);
  }
  if (rotating.size() != fallback.size()) {
    throw config.json().error(kKey, "has " + std::to_string(rotating.size()) +
                                        " entries; accepted: one for each of num_hidden_layers (" +
                                        std::to_string(fallback.size()) + ")");
  }
  return rotating;
}

Architecture muse_glimmer_text(HfReader& config) {
  MuseGlimmerSpec spec;
  read_decoder(config,
               {.vocab_size = 202048,
                .hidden_size = 6656,
                .intermediate_size = 19968,
                .num_hidden_layers = 52,
                .num_key_value_heads = 2,
                .head_dim = 128,
                .activation_key = "hidden_activation",
                .max_position_embeddings = 131072},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  read_window(config, spec, 2048);
  if (!spec.sliding_window) {
    throw config.json().error("sliding_window", "null; accepted: a size, since the model has sliding layers");
  }
  spec.sliding_layers = layer_types(config, spec.num_hidden_layers);
  std::vector<bool> usual;  // every fourth, counted from the last, sees everything and has no positions
  for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) usual.push_back((spec.num_hidden_layers - 1 - i) % 4 != 0);
  if (spec.sliding_layers.empty()) spec.sliding_layers = usual;
  spec.rotating_layers = read_rotating_layers(config, usual);
  return spec;
}

constexpr std::string_view kMusePlan[] = {"embed_tokens", "q_proj",  "k_proj",    "v_proj", "gate_proj",
                                          "o_proj",       "up_proj", "down_proj", "lm_head"};

}  // namespace

const Family kMuseGlimmerText = {
    .model_type = "muse_glimmer_text",
    .kind = FamilyKind::kDecoder,
    .read = muse_glimmer_text,
    .build = build_muse_glimmer_text,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kMusePlan,
    .dropout_is_module = false,
    .cut_cross_entropy = false,
};

}  // namespace memcalc::family
