// config.json of SmolLM3, as transformers 5.17 reads it: models/smollm3.
#include <algorithm>

#include "memcalc/families/smollm3/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

/// no_rope_layers, whose ones are layers with positions; without it every no_rope_layer_interval-th has none.
std::vector<bool> layers_that_rotate(HfReader& config, std::int64_t layers) {
  if (!config.json().has("no_rope_layers") || config.json().is_null("no_rope_layers")) {
    return sliding_but_every(config.size({"no_rope_layer_interval"}, 4), layers);
  }
  std::vector<bool> rotates;
  for (const std::int64_t each : config.json().required_ints("no_rope_layers", {0, 1})) rotates.push_back(each == 1);
  if (static_cast<std::int64_t>(rotates.size()) < layers) {
    throw config.json().error("no_rope_layers", "has " + std::to_string(rotates.size()) +
                                                    " entries; accepted: one for each of num_hidden_layers (" +
                                                    std::to_string(layers) + ")");
  }
  rotates.resize(static_cast<std::size_t>(layers));
  return rotates;
}

Architecture smollm3(HfReader& config) {
  SmolLm3Spec spec;
  read_decoder(config,
               {.vocab_size = 128256,
                .hidden_size = 2048,
                .intermediate_size = 11008,
                .num_hidden_layers = 36,
                .num_attention_heads = 16,
                .num_key_value_heads = 4,
                .max_position_embeddings = 32768,
                .tie_word_embeddings = true},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  spec.rotates = layers_that_rotate(config, spec.num_hidden_layers);
  if (!config.flag("use_sliding_window", false)) return spec;
  spec.sliding_window = config.nullable_size("sliding_window");
  spec.sliding_layers = layer_types(config, spec.num_hidden_layers);
  if (!spec.sliding_layers.empty() || !spec.sliding_window) return spec;
  for (const bool rotates : spec.rotates) spec.sliding_layers.push_back(!rotates);
  return spec;
}

}  // namespace

const Family kSmolLm3 = {
    .model_type = "smollm3",
    .kind = FamilyKind::kDecoder,
    .read = smollm3,
    .build = build_smollm3,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .answers_questions = true,
    .instructions_per_operator = 70,
    .fp8_layers = true,
};

}  // namespace memcalc::family
