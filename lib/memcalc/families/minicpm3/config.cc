// config.json of MiniCPM 3, as transformers 5.17 reads it: models/minicpm3.
#include "memcalc/families/minicpm3/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/latent_attention_config.h"

namespace memcalc::family {
namespace {

Architecture minicpm3(HfReader& config) {
  MiniCpm3Spec spec;
  const std::int64_t hidden = config.json().nullable_int("hidden_size", kSizeRange).value_or(2560);
  const std::int64_t heads = config.json().nullable_int("num_attention_heads", kSizeRange).value_or(40);
  read_deepseek(config,
                {.vocab_size = 73448,
                 .hidden_size = 2560,
                 .intermediate_size = 6400,
                 .num_hidden_layers = 62,
                 .num_attention_heads = 40,
                 .num_key_value_heads = 40,
                 .max_position_embeddings = 32768,
                 .tie_word_embeddings = true},
                spec,
                {.q_lora_rank = 768,
                 .kv_lora_rank = 256,
                 .qk_nope_head_dim = 64,
                 .qk_rope_head_dim = 32,
                 .v_head_dim = hidden / heads});
  spec.first_k_dense_replace = kLayerRange.max;
  return spec;
}

constexpr std::string_view kMiniCpm3Plan[] = {"q_proj",    "q_b_proj", "kv_b_proj", "o_proj",
                                              "gate_proj", "up_proj",  "down_proj", "lm_head"};

}  // namespace

const Family kMiniCpm3 = {
    .model_type = "minicpm3",
    .kind = FamilyKind::kDecoder,
    .read = minicpm3,
    .build = build_minicpm3,
    .size_keys = kLatentKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kMiniCpm3Plan,
    .dropout_is_module = false,
    .instructions_per_operator = 44,
    .cut_cross_entropy = false,
    .has_latent_attention = true,
};

}  // namespace memcalc::family
