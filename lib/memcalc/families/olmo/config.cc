// config.json of OLMo 1, as transformers 5.17 reads it: models/olmo.
#include "memcalc/families/olmo/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture olmo(HfReader& config) {
  OlmoSpec spec;
  read_decoder(config, {.vocab_size = 50304, .intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  spec.attention_bias = config.flag("attention_bias", false);
  if (config.json().nullable_double("clip_qkv", {0, 1e9})) {
    throw config.json().error("clip_qkv", "clipping query, key and value is not modelled; accepted: null",
                              ErrorCode::kUnsupported);
  }
  return spec;
}

}  // namespace

const Family kOlmo = {
    .model_type = "olmo",
    .kind = FamilyKind::kDecoder,
    .read = olmo,
    .build = build_olmo,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false},
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .instructions_per_operator = 78,
    .fp8_layers = true,
};

}  // namespace memcalc::family
