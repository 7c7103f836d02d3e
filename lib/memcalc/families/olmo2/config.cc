// config.json of OLMo 2 and 3, as transformers 5.17 reads it: models/olmo2, models/olmo3.
#include "memcalc/families/olmo2/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture olmo2(HfReader& config) {
  Olmo2Spec spec;
  read_decoder(config, {.vocab_size = 50304, .intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  spec.attention_bias = config.flag("attention_bias", false);
  return spec;
}

Architecture olmo3(HfReader& config) {
  Olmo2Spec spec;
  read_decoder(config, {.vocab_size = 50304, .intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.yarn_positions = has_yarn_positions(config, false);  // of the layers without a window
  read_window(config, spec);
  spec.sliding_layers = layer_types(config, spec.num_hidden_layers);
  if (spec.sliding_layers.empty()) spec.sliding_layers = sliding_but_every(4, spec.num_hidden_layers);
  if (!spec.sliding_window) {
    throw config.json().error("sliding_window", "null; accepted: a size, since a mask is made of it");
  }
  return spec;
}

}  // namespace

const Family kOlmo2 = {
    .model_type = "olmo2",
    .kind = FamilyKind::kDecoder,
    .read = olmo2,
    .build = build_olmo2,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAndClassifier,
    .special_tokens = {.begins = false},
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .instructions_per_operator = 47,
    .fp8_layers = true,
    .has_stages = true,
};

const Family kOlmo3 = {
    .model_type = "olmo3",
    .kind = FamilyKind::kDecoder,
    .read = olmo3,
    .build = build_olmo2,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false},
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .instructions_per_operator = 51,
    .fp8_layers = true,
};

}  // namespace memcalc::family
