// config.json of DeepSeek-V2, V3 and R1, Kimi K2, GLM-4.7-Flash, Youtu-LLM, as transformers 5.17 reads it:
// models/deepseek_v2, models/deepseek_v3, models/glm4_moe_lite, models/youtu.
#include <algorithm>
#include <string>
#include <vector>

#include "memcalc/families/deepseek/spec.h"
#include "memcalc/spec/decoder_config.h"
#include "memcalc/spec/hf_reader.h"
#include "memcalc/spec/latent_attention_config.h"
#include "memcalc/spec/tp_plans.h"

namespace memcalc::family {
namespace {

void read_leading_dense(HfReader& config, std::int64_t fallback, DeepseekSpec& spec) {
  spec.first_k_dense_replace = config.size({"first_k_dense_replace"}, fallback, {0, kLayerRange.max});
}

Architecture deepseek_v2(HfReader& config) {
  DeepseekV2Spec spec;
  read_deepseek(config, {.vocab_size = 102400, .intermediate_size = 11008, .max_position_embeddings = 2048}, spec);
  read_leading_dense(config, 0, spec);
  spec.mlp_bias = config.flag("mlp_bias", false);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 1407);
  // Without a default: None, with which the model cannot run.
  const std::int64_t per_token = config.json().required_int("num_experts_per_tok", {1, 1023});
  spec.experts = read_experts(config, {"n_routed_experts", "num_experts"}, 64, per_token, width, spec);
  spec.n_shared_experts = config.size({"n_shared_experts"}, 2);
  read_greedy_groups(config, spec);
  return spec;
}

Architecture deepseek_v3(HfReader& config) {
  DeepseekV3Spec spec;
  read_deepseek(config,
                {.vocab_size = 129280,
                 .hidden_size = 7168,
                 .intermediate_size = 18432,
                 .num_hidden_layers = 61,
                 .num_attention_heads = 128,
                 .num_key_value_heads = 128,
                 .max_position_embeddings = 4096},
                spec);
  read_leading_dense(config, 3, spec);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 2048);
  spec.experts = read_experts(config, {"n_routed_experts", "num_local_experts"}, 256, 8, width, spec);
  spec.n_shared_experts = config.size({"n_shared_experts"}, 1);
  take_groups(config, 8, 4, 2, spec);
  spec.norm_topk_prob = config.flag("norm_topk_prob", true);
  spec.rope_interleave = config.flag("rope_interleave", true);
  return spec;
}

Architecture glm4_moe_lite(HfReader& config) {
  DeepseekV3Spec spec;
  read_deepseek(config,
                {.vocab_size = 154880,
                 .hidden_size = 2048,
                 .intermediate_size = 10240,
                 .num_hidden_layers = 47,
                 .num_attention_heads = 20,
                 .num_key_value_heads = 20,
                 .max_position_embeddings = 202752},
                spec, glm_latent(768));
  spec.first_k_dense_replace = leading_dense_layers(config, spec.num_hidden_layers, 1);
  const std::int64_t width = config.size({"moe_intermediate_size"}, 1536);
  spec.experts = read_experts(config, {"n_routed_experts", "num_local_experts"}, 64, 4, width, spec);
  spec.n_shared_experts = config.size({"n_shared_experts"}, 1);
  take_groups(config, 1, 1, 2, spec);
  spec.norm_topk_prob = config.flag("norm_topk_prob", true);
  spec.rope_interleave = config.flag("rope_interleave", true);
  spec.float32_correction = true;
  return spec;
}

/// DeepSeek-V3's attention in layers that are all dense.
Architecture youtu(HfReader& config) {
  DeepseekV3Spec spec;
  read_deepseek(config,
                {.vocab_size = 128256,
                 .hidden_size = 2048,
                 .intermediate_size = 6144,
                 .num_attention_heads = 16,
                 .num_key_value_heads = 16,
                 .max_position_embeddings = 131072,
                 .tie_word_embeddings = true},
                spec);
  spec.first_k_dense_replace = kLayerRange.max;
  spec.rope_interleave = config.flag("rope_interleave", true);
  return spec;
}

/// A Kimi K2 checkpoint brings no classes but DeepSeek-V3's (auto_map names DeepseekV3ForCausalLM).
Architecture kimi_k2(HfReader& config) {
  config.assume("kimi_k2 is computed as deepseek_v3 is: its config.json names DeepSeek-V3's classes");
  return deepseek_v3(config);
}

constexpr std::string_view kV2Plan[] = {"q_proj",    "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj",    "o_proj",
                                        "gate_proj", "up_proj",  "down_proj",          "gate_up_proj", "lm_head"};
constexpr std::string_view kLitePlan[] = {"q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj",    "o_proj", "gate_proj",
                                          "up_proj",  "down_proj",          "gate_up_proj", "lm_head"};
constexpr std::string_view kYoutuPlan[] = {"gate_proj", "up_proj", "down_proj", "lm_head"};

}  // namespace

const Family kDeepseekV2 = {
    .model_type = "deepseek_v2",
    .kind = FamilyKind::kDecoder,
    .read = deepseek_v2,
    .build = build_deepseek_v2,
    .size_keys = kLatentKeys,
    .measured = kCausalLmAndClassifier,
    .tp_plan = kV2Plan,
    .dropout_is_module = false,
    .fp8_layers = true,
    .has_stages = true,
    .has_latent_attention = true,
    .preset = R"("num_experts_per_tok": 6)",  // transformers has no default, and no option says it
    .told = "num_experts_per_tok = 6, as in DeepSeek-V2 and V2-Lite",
    .to_megatron = deepseek_v2_to_megatron,
};

const Family kDeepseekV3 = {
    .model_type = "deepseek_v3",
    .kind = FamilyKind::kDecoder,
    .read = deepseek_v3,
    .build = build_deepseek_v3,
    .size_keys = kLatentKeys,
    .measured = kCausalLmAndClassifier,
    .tp_plan = kBothMlpsPlan,
    .dropout_is_module = false,
    .fp8_layers = true,
    .has_stages = true,
    .has_latent_attention = true,
    .to_megatron = deepseek_v3_to_megatron,
};

const Family kGlm4MoeLite = {
    .model_type = "glm4_moe_lite",
    .kind = FamilyKind::kDecoder,
    .read = glm4_moe_lite,
    .build = build_glm4_moe_lite,
    .size_keys = kLatentKeys,
    .measured = kCausalLmAlone,
    .special_tokens = {.begins = false, .ends = false},
    .tp_plan = kLitePlan,
    .dropout_is_module = false,
    .has_stages = true,
    .has_latent_attention = true,
};

const Family kKimiK2 = {
    .model_type = "kimi_k2",
    .kind = FamilyKind::kDecoder,
    .read = kimi_k2,
    .build = build_deepseek_v3,
    .size_keys = kLatentKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kBothMlpsPlan,
    .dropout_is_module = false,
    .fp8_layers = true,
    .has_stages = true,
    .has_latent_attention = true,
    .to_megatron = deepseek_v3_to_megatron,
};

const Family kYoutu = {
    .model_type = "youtu",
    .kind = FamilyKind::kDecoder,
    .read = youtu,
    .build = build_youtu,
    .size_keys = kLatentKeys,
    .measured = kCausalLmAlone,
    .tp_plan = kYoutuPlan,
    .dropout_is_module = false,
    .instructions_per_operator = 50,
    .has_latent_attention = true,
};

}  // namespace memcalc::family
