// config.json of GLM 4, as transformers 5.17 reads it: models/glm, models/glm4.
#include "memcalc/families/glm/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture glm(HfReader& config) {
  GlmSpec spec;
  read_decoder(config,
               {.vocab_size = 151552,
                .intermediate_size = 13696,
                .num_hidden_layers = 40,
                .num_key_value_heads = 2,
                .head_dim = 128,
                .max_position_embeddings = 131072},
               spec);
  spec.attention_bias = config.flag("attention_bias", true);
  spec.rotary_dim = rotary_dim(config, "partial_rotary_factor", 0.5, spec.head_dim);
  return spec;
}

}  // namespace

const Family kGlm = {
    .model_type = "glm",
    .kind = FamilyKind::kDecoder,
    .read = glm,
    .build = build_glm,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false},
    .tp_plan = kFusedGatePlan,
    .dropout_is_module = false,
    .instructions_per_operator = 56,
    .fp8_layers = true,
};

const Family kGlm4 = {
    .model_type = "glm4",
    .kind = FamilyKind::kDecoder,
    .read = glm,
    .build = build_glm4,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false},
    .tp_plan = kFusedGatePlan,
    .dropout_is_module = false,
    .instructions_per_operator = 46,
    .fp8_layers = true,
};

}  // namespace memcalc::family
