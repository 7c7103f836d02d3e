// config.json of Nemotron, as transformers 5.17 reads it: models/nemotron.
#include "memcalc/families/nemotron/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture nemotron(HfReader& config) {
  NemotronSpec spec;
  read_decoder(config,
               {.vocab_size = 256000,
                .hidden_size = 6144,
                .intermediate_size = 24576,
                .num_attention_heads = 48,
                .activation = "relu2",
                .max_position_embeddings = 4096},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.mlp_bias = config.flag("mlp_bias", false);
  spec.rotary_dim = rotary_dim(config, "partial_rotary_factor", 0.5, spec.head_dim);
  return spec;
}

}  // namespace

const Family kNemotron = {
    .model_type = "nemotron",
    .kind = FamilyKind::kDecoder,
    .read = nemotron,
    .build = build_nemotron,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .answers_questions = true,
    .instructions_per_operator = 83,
};

}  // namespace memcalc::family
