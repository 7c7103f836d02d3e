// config.json of Command R, as transformers 5.17 reads it: models/cohere, models/cohere2.
#include "memcalc/families/cohere/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

CohereSpec read_command(HfReader& config) {
  CohereSpec spec;
  read_decoder(config,
               {.vocab_size = 256000,
                .hidden_size = 8192,
                .intermediate_size = 22528,
                .num_hidden_layers = 40,
                .num_attention_heads = 64,
                .max_position_embeddings = 8192,
                .tie_word_embeddings = true},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  return spec;
}

Architecture cohere(HfReader& config) {
  CohereSpec spec = read_command(config);
  spec.use_qk_norm = config.flag("use_qk_norm", false);
  return spec;
}

Architecture cohere2(HfReader& config) {
  CohereSpec spec = read_command(config);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  spec.head_dim = spec.hidden_size / spec.num_attention_heads;
  read_window(config, spec);
  spec.sliding_layers = layer_types(config, spec.num_hidden_layers);
  if (spec.sliding_layers.empty()) {
    const std::int64_t pattern = config.nullable_size("sliding_window_pattern").value_or(4);
    spec.sliding_layers = sliding_but_every(pattern, spec.num_hidden_layers);
  }
  if (!spec.sliding_window) {
    throw config.json().error("sliding_window", "null; accepted: a size, since a mask is made of it");
  }
  return spec;
}

}  // namespace

const Family kCohere = {
    .model_type = "cohere",
    .kind = FamilyKind::kDecoder,
    .read = cohere,
    .build = build_cohere,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .instructions_per_operator = 58,
    .fp8_layers = true,
};

const Family kCohere2 = {
    .model_type = "cohere2",
    .kind = FamilyKind::kDecoder,
    .read = cohere2,
    .build = build_cohere,
    .size_keys = kUnsizedHeadKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .instructions_per_operator = 68,
    .fp8_layers = true,
};

}  // namespace memcalc::family
