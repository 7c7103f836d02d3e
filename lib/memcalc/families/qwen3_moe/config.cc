// config.json of Qwen3-MoE, as transformers 5.17 reads it: models/qwen3_moe.
#include "memcalc/families/qwen3_moe/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

Architecture qwen3_moe(HfReader& config) {
  Qwen3MoeSpec spec;
  read_decoder(config,
               {.vocab_size = 151936,
                .hidden_size = 2048,
                .intermediate_size = 6144,
                .num_hidden_layers = 24,
                .num_key_value_heads = 4,
                .max_position_embeddings = 32768},
               spec);
  spec.attention_bias = config.flag("attention_bias", false);
  if (config.flag("use_sliding_window", false)) read_window(config, spec);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 768);
  spec.experts = read_experts(config, {"num_experts", "num_local_experts"}, 128, 8, width, spec);
  spec.norm_topk_prob = config.flag("norm_topk_prob", false);
  refuse_auxiliary_loss(config);
  spec.dense_layers = read_dense_layers(config, spec.num_hidden_layers);
  return spec;
}

}  // namespace

const Family kQwen3Moe = {
    .model_type = "qwen3_moe",
    .kind = FamilyKind::kDecoder,
    .read = qwen3_moe,
    .build = build_qwen3_moe,
    .size_keys = kDecoderKeys,
    .measured = kCausalLmAndClassifier,
    .special_tokens = {.begins = false, .ends = false},
    .tp_plan = kNormedDenseAndExpertsPlan,
    .dropout_is_module = false,
    .answers_questions = true,
    .has_router_loss = true,
    .fp8_layers = true,
    .has_stages = true,
    .loops_over_experts = true,
    .to_megatron = qwen3_moe_to_megatron,
};

}  // namespace memcalc::family
