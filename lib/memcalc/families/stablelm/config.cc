// config.json of StableLM, as transformers 5.17 reads it: models/stablelm.
#include "memcalc/families/stablelm/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture stablelm(HfReader& config) {
  StableLmSpec spec;
  read_decoder(config,
               {.vocab_size = 50304,
                .hidden_size = 2560,
                .intermediate_size = 6912,
                .num_key_value_heads = 32,
                .max_position_embeddings = 4096},
               spec);
  config.divides("num_attention_heads", spec.num_attention_heads, "hidden_size", spec.hidden_size);
  spec.head_dim = spec.hidden_size / spec.num_attention_heads;
  spec.rotary_dim = rotary_dim(config, "partial_rotary_factor", 0.25, spec.head_dim);
  spec.use_qkv_bias = config.flag("use_qkv_bias", false);
  spec.use_parallel_residual = config.flag("use_parallel_residual", false);
  spec.hidden_dropout = config.probability("hidden_dropout", 0);
  config.only_flag("qk_layernorm", false);
  return spec;
}

}  // namespace

const Family kStableLm = {
    .model_type = "stablelm",
    .kind = FamilyKind::kDecoder,
    .read = stablelm,
    .build = build_stablelm,
    .size_keys = kUnsizedHeadKeys,
    .measured = kCausalLmAlone,
    .instructions_per_operator = 90,
    .fp8_layers = true,
};

}  // namespace memcalc::family
