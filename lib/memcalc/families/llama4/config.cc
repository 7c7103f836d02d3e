// config.json of the text model of Llama 4, as transformers 5.17 reads it: models/llama4.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/families/llama4/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

/// moe_layers, else each interleave_moe_layer_step-th layer: 0 is none (range() of transformers takes no step of 0, so
/// such a config.json has moe_layers).
std::vector<bool> read_dense(HfReader& config, std::int64_t layers) {
  const JsonObject& json = config.json();
  if (json.has("moe_layers") && !json.is_null("moe_layers")) {
    std::vector<bool> dense(static_cast<std::size_t>(layers), true);
    for (const std::int64_t layer : json.required_ints("moe_layers", {0, layers - 1})) {
      dense[static_cast<std::size_t>(layer)] = false;
    }
    return dense;
  }
  const std::int64_t step = config.size({"interleave_moe_layer_step"}, 1);
  std::vector<bool> dense;
  for (std::int64_t i = 0; i < layers; ++i) dense.push_back((i + 1) % step != 0);
  return dense;
}

/// no_rope_layers where it names any, else all but each no_rope_layer_interval-th.
std::vector<bool> read_rotates(HfReader& config, std::int64_t layers) {
  std::vector<bool> rotates;
  const JsonObject& json = config.json();
  if (json.has("no_rope_layers") && !json.is_null("no_rope_layers")) {
    for (const std::int64_t each : json.required_ints("no_rope_layers", {0, 1})) rotates.push_back(each != 0);
  }
  if (rotates.empty()) {
    const std::int64_t interval = config.size({"no_rope_layer_interval"}, 4);
    for (std::int64_t i = 0; i < layers; ++i) rotates.push_back((i + 1) % interval != 0);
  }
  if (static_cast<std::int64_t>(rotates.size()) != layers) {
    throw json.error("no_rope_layers", "found " + std::to_string(rotates.size()) +
                                           " numbers; accepted: " + std::to_string(layers) + " (num_hidden_layers)");
  }
  return rotates;
}

std::vector<bool> read_chunked(HfReader& config, const Llama4TextSpec& spec) {
  const JsonObject& json = config.json();
  if (!json.has("layer_types") || json.is_null("layer_types")) return spec.rotates;
  std::vector<bool> chunked;
  for (const std::string& type : json.optional_strings("layer_types")) chunked.push_back(type == "chunked_attention");
  if (static_cast<std::int64_t>(chunked.size()) != spec.num_hidden_layers) {
    throw json.error("layer_types", "found " + std::to_string(chunked.size()) + " names; accepted: " +
                                        std::to_string(spec.num_hidden_layers) + " (num_hidden_layers)");
  }
  return chunked;
}

Architecture llama4_text(HfReader& config) {
  Llama4TextSpec spec;
  read_decoder(config,
               {.vocab_size = 202048,
                .hidden_size = 5120,
                .intermediate_size = 8192,
                .num_hidden_layers = 48,
                .num_attention_heads = 40,
                .num_key_value_heads = 8,
                .head_dim = 128,
                .max_position_embeddings = 131072},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.intermediate_size_mlp = config.size({"intermediate_size_mlp"}, 16384);
  spec.dense_layers = read_dense(config, spec.num_hidden_layers);
  const bool mixes = std::find(spec.dense_layers.begin(), spec.dense_layers.end(), false) != spec.dense_layers.end();
  if (mixes) spec.experts = read_experts(config, {"num_local_experts"}, 16, 1, spec.intermediate_size, spec);
  spec.rotates = read_rotates(config, spec.num_hidden_layers);
  spec.sliding_layers = read_chunked(config, spec);
  spec.sliding_window = config.size({"attention_chunk_size"}, 8192);
  spec.use_qk_norm = config.flag("use_qk_norm", true);
  spec.attn_temperature_tuning = config.flag("attn_temperature_tuning", true);
  refuse_auxiliary_loss(config);
  return spec;
}

/// Its text_config alone: what AutoModelForCausalLM makes of it.
Architecture llama4(HfReader& config) {
  const JsonDocument none = JsonDocument::parse("{}", config.json().file());  // Llama4TextConfig()
  const JsonObject text = config.json().nullable_object("text_config").value_or(none.root());
  HfReader reader(text, "llama4_text");
  Architecture architecture = llama4_text(reader);
  for (std::string& line : reader.assumptions()) config.assume(std::move(line));
  config.assume(
      "llama4 sees images too: this is Llama4ForCausalLM, its text model, without the vision tower (the program "
      "llama-4-scout-17b-16e-vision has it)");
  return architecture;
}

}  // namespace

const Family kLlama4 = {
    .model_type = "llama4",
    .kind = FamilyKind::kDecoder,
    .read = llama4,
    .build = build_llama4_text,
    .measured = {},
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .compiled_whole_alone = true,
};

const Family kLlama4Text = {
    .model_type = "llama4_text",
    .kind = FamilyKind::kDecoder,
    .read = llama4_text,
    .build = build_llama4_text,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .instructions_per_operator = 57,
    .compiled_whole_alone = true,
};

}  // namespace memcalc::family
