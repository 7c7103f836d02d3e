// config.json of Seed-OSS, as transformers 5.17 reads it: models/seed_oss.
#include "memcalc/families/seed_oss/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture seed_oss(HfReader& config) {
  SeedOssSpec spec;
  read_decoder(config,
               {.vocab_size = 155136,
                .intermediate_size = 27648,
                .num_hidden_layers = 64,
                .num_attention_heads = 80,
                .num_key_value_heads = 8,
                .head_dim = 128,
                .max_position_embeddings = 524288,
                .attention_dropout = 0.1},
               spec);
  spec.attention_bias = config.flag("attention_bias", true);
  spec.attention_out_bias = config.flag("attention_out_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  spec.residual_dropout = config.probability("residual_dropout", 0.1);
  return spec;
}

}  // namespace

const Family kSeedOss = {
    .model_type = "seed_oss",
    .kind = FamilyKind::kDecoder,
    .read = seed_oss,
    .build = build_seed_oss,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .answers_questions = true,
    .instructions_per_operator = 63,
    .fp8_layers = true,
};

}  // namespace memcalc::family
