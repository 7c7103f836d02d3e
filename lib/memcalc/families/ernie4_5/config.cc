// config.json of ERNIE 4.5, as transformers 5.17 reads it: models/ernie4_5.
#include "memcalc/families/ernie4_5/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture ernie4_5(HfReader& config) {
  Ernie45Spec spec;
  read_decoder(config,
               {.vocab_size = 103424,
                .hidden_size = 1024,
                .intermediate_size = 3072,
                .num_hidden_layers = 18,
                .num_attention_heads = 16,
                .num_key_value_heads = 2,
                .head_dim = 128,
                .max_position_embeddings = 131072,
                .tie_word_embeddings = true},
               spec);
  spec.attention_dropout = 0;  // whatever config.json says
  spec.use_bias = config.flag("use_bias", false);
  return spec;
}

}  // namespace

const Family kErnie45 = {
    .model_type = "ernie4_5",
    .kind = FamilyKind::kDecoder,
    .read = ernie4_5,
    .build = build_ernie4_5,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kDensePlan,
    .dropout_is_module = false,
    .instructions_per_operator = 52,
    .fp8_layers = true,
};

}  // namespace memcalc::family
