// config.json of GLM-4.5 and 4.6, as transformers 5.17 reads it: models/glm4_moe.
#include "memcalc/families/glm4_moe/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/latent_attention_config.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture glm4_moe(HfReader& config) {
  Glm4MoeSpec spec;
  read_decoder(config,
               {.vocab_size = 151552,
                .intermediate_size = 10944,
                .num_hidden_layers = 46,
                .num_attention_heads = 96,
                .num_key_value_heads = 8,
                .max_position_embeddings = 131072},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  spec.rotary_dim = rotary_dim(config, "partial_rotary_factor", 0.5, spec.head_dim);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 1408);
  spec.experts = read_experts(config, {"n_routed_experts", "num_local_experts"}, 128, 8, width, spec);
  spec.n_shared_experts = config.size({"n_shared_experts"}, 1);
  spec.first_k_dense_replace = config.size({"first_k_dense_replace"}, 1, {0, kLayerRange.max});
  take_groups(config, 1, 1, 2, spec);
  spec.norm_topk_prob = config.flag("norm_topk_prob", true);
  spec.use_qk_norm = config.flag("use_qk_norm", false);
  return spec;
}

}  // namespace

const Family kGlm4Moe = {
    .model_type = "glm4_moe",
    .kind = FamilyKind::kDecoder,
    .read = glm4_moe,
    .build = build_glm4_moe,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false, .ends = false},
    .tp_plan = kDenseAndExpertsPlan,
    .dropout_is_module = false,
    .has_stages = true,
    .preset = R"("head_dim": 128)",  // transformers' own sizes give heads of 42, of which 21 would be rotated
    .told = "head_dim = 128, as in GLM-4.5",
};

}  // namespace memcalc::family
