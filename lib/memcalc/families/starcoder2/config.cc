// config.json of StarCoder2, as transformers 5.17 reads it: models/starcoder2.
#include "memcalc/families/starcoder2/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture starcoder2(HfReader& config) {
  Starcoder2Spec spec;
  read_decoder(config,
               {.vocab_size = 49152,
                .hidden_size = 3072,
                .intermediate_size = 12288,
                .num_hidden_layers = 30,
                .num_attention_heads = 24,
                .num_key_value_heads = 2,
                .activation = "gelu_pytorch_tanh",
                .max_position_embeddings = 4096,
                .tie_word_embeddings = true},
               spec);
  spec.sliding_window = config.nullable_size("sliding_window");
  spec.use_bias = config.flag("use_bias", true);
  spec.residual_dropout = config.probability("residual_dropout", 0);
  spec.embedding_dropout = config.probability("embedding_dropout", 0);
  return spec;
}

constexpr std::string_view kStarcoder2Plan[] = {"q_proj", "k_proj", "v_proj", "o_proj", "c_fc", "c_proj", "lm_head"};

}  // namespace

const Family kStarcoder2 = {
    .model_type = "starcoder2",
    .kind = FamilyKind::kDecoder,
    .read = starcoder2,
    .build = build_starcoder2,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kStarcoder2Plan,
    .dropout_is_module = false,
    .instructions_per_operator = 103,
    .fp8_layers = true,
};

}  // namespace memcalc::family
