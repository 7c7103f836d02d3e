// config.json of Hunyuan 3, as transformers 5.17 reads it: models/hy_v3.
#include "memcalc/families/hy_v3/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/latent_attention_config.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture hy_v3(HfReader& config) {
  HyV3Spec spec;
  read_decoder(config,
               {.vocab_size = 120832,
                .intermediate_size = 13312,
                .num_hidden_layers = 80,
                .num_attention_heads = 64,
                .num_key_value_heads = 8,
                .head_dim = 128,
                .max_position_embeddings = 131072},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 1536);
  spec.experts = read_experts(config, {"num_experts", "num_local_experts"}, 192, 8, width, spec);
  spec.num_shared_experts = config.size({"num_shared_experts"}, 1);
  spec.enable_moe_fp32_combine = config.flag("enable_moe_fp32_combine", true);
  const std::int64_t dense = leading_dense_layers(config, spec.num_hidden_layers, 1);
  for (std::int64_t i = 0; i < spec.num_hidden_layers; ++i) spec.dense_layers.push_back(i < dense);
  return spec;
}

}  // namespace

const Family kHyV3 = {
    .model_type = "hy_v3",
    .kind = FamilyKind::kDecoder,
    .read = hy_v3,
    .build = build_hy_v3,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false, .ends = false},
    .tp_plan = kNormedDenseAndExpertsPlan,
    .dropout_is_module = false,
};

}  // namespace memcalc::family
