// config.json of Granite, as transformers 5.17 reads it: models/granite.
#include "memcalc/families/granite/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture granite(HfReader& config) {
  GraniteSpec spec;
  read_decoder(config, {.intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  return spec;
}

}  // namespace

const Family kGranite = {
    .model_type = "granite",
    .kind = FamilyKind::kDecoder,
    .read = granite,
    .build = build_granite,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .instructions_per_operator = 58,
    .fp8_layers = true,
};

}  // namespace memcalc::family
