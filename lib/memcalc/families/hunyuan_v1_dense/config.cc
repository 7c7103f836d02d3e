// config.json of Hunyuan V1, as transformers 5.17 reads it: models/hunyuan_v1_dense.
#include "memcalc/families/hunyuan_v1_dense/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"

namespace memcalc::family {
namespace {

Architecture hunyuan(HfReader& config) {
  HunyuanSpec spec;
  read_decoder(config, {.vocab_size = 290943, .intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  spec.attention_bias = config.flag("attention_bias", false);
  return spec;
}

}  // namespace

const Family kHunyuanV1Dense = {
    .model_type = "hunyuan_v1_dense",
    .kind = FamilyKind::kDecoder,
    .read = hunyuan,
    .build = build_hunyuan,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .dropout_is_module = false,
    .instructions_per_operator = 49,
    .fp8_layers = true,
};

}  // namespace memcalc::family
