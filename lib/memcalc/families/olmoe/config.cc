// config.json of OLMoE, as transformers 5.17 reads it: models/olmoe.
#include "memcalc/families/olmoe/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture olmoe(HfReader& config) {
  OlmoeSpec spec;
  read_decoder(config,
               {.vocab_size = 50304,
                .hidden_size = 2048,
                .intermediate_size = 2048,
                .num_hidden_layers = 16,
                .num_attention_heads = 16,
                .max_position_embeddings = 4096},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  if (!config.json().is_null("clip_qkv")) config.only_absent("clip_qkv");
  spec.experts = read_experts(config, {"num_experts", "num_local_experts"}, 64, 8, spec.intermediate_size, spec);
  spec.norm_topk_prob = config.flag("norm_topk_prob", false);
  refuse_auxiliary_loss(config);
  return spec;
}

}  // namespace

const Family kOlmoe = {
    .model_type = "olmoe",
    .kind = FamilyKind::kDecoder,
    .read = olmoe,
    .build = build_olmoe,
    .size_keys = kUnsizedHeadKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false},
    .tp_plan = kFusedGatePlan,
    .dropout_is_module = false,
    .has_stages = true,
};

}  // namespace memcalc::family
