// spec/hf_experts.cc: config.json of the mixtures of experts, their defaults and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "memcalc/families/deepseek/spec.h"
#include "memcalc/families/ernie4_5_moe/spec.h"
#include "memcalc/families/glm4_moe/spec.h"
#include "memcalc/families/gpt_oss/spec.h"
#include "memcalc/families/minimax_m2/spec.h"
#include "memcalc/families/mixtral/spec.h"
#include "memcalc/families/olmoe/spec.h"
#include "memcalc/families/qwen2_moe/spec.h"
#include "memcalc/families/qwen3_moe/spec.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "support/error_text.h"

namespace memcalc {
namespace {

using ::testing::ElementsAre;

ModelSpec read(const std::string& text) {
  const JsonDocument document = JsonDocument::parse(text, "config.json");
  return model_from_hf_config(document.root(), "test");
}

template <typename Spec>
Spec spec_of(const std::string& text) {
  return read(text).architecture.as<Spec>();
}

TEST(HfExperts, MixtralDefaultsAreThoseOf8x7B) {
  const auto spec = spec_of<MixtralSpec>(R"({"model_type": "mixtral"})");
  EXPECT_EQ(spec.experts.count, 8);
  EXPECT_EQ(spec.experts.per_token, 2);
  EXPECT_EQ(spec.experts.intermediate_size, 14336);
  EXPECT_EQ(spec.num_key_value_heads, 8);
  EXPECT_FALSE(spec.sliding_window.has_value());
  EXPECT_EQ(read(R"({"model_type": "mixtral"})").assumptions.front(),
            "vocab_size = 32000, hidden_size = 4096, intermediate_size = 14336, num_hidden_layers = 32, "
            "num_attention_heads = 32, num_key_value_heads = 8, max_position_embeddings = 131072, num_local_experts = "
            "8, num_experts_per_tok = 2 (absent from config.json; transformers' defaults for mixtral)");
}

TEST(HfExperts, BothNamesOfTheirNumber) {
  EXPECT_EQ(spec_of<MixtralSpec>(R"({"model_type": "mixtral", "num_experts": 4})").experts.count, 4);
  EXPECT_EQ(spec_of<Qwen3MoeSpec>(R"({"model_type": "qwen3_moe", "num_local_experts": 16})").experts.count, 16);
  EXPECT_EQ(spec_of<DeepseekV3Spec>(R"({"model_type": "deepseek_v3", "num_local_experts": 16})").experts.count, 16);
}

TEST(HfExperts, Qwen3MoeMixesDenseLayersIn) {
  const auto spec = spec_of<Qwen3MoeSpec>(
      R"({"model_type": "qwen3_moe", "num_hidden_layers": 6, "decoder_sparse_step": 2, "mlp_only_layers": [3, 9]})");
  EXPECT_THAT(spec.dense_layers, ElementsAre(true, false, true, true, true, false));
  EXPECT_EQ(spec.experts.count, 128);
  EXPECT_EQ(spec.experts.per_token, 8);
  EXPECT_FALSE(spec.norm_topk_prob);
  const auto plain = spec_of<Qwen3MoeSpec>(R"({"model_type": "qwen3_moe", "num_hidden_layers": 2})");
  EXPECT_THAT(plain.dense_layers, ElementsAre(false, false));
}

TEST(HfExperts, GptOssAlternatesAndHasYarnPositions) {
  const auto spec = spec_of<GptOssSpec>(R"({"model_type": "gpt_oss", "num_hidden_layers": 3})");
  EXPECT_THAT(spec.sliding_layers, ElementsAre(true, false, true));
  EXPECT_EQ(spec.sliding_window, 128);
  EXPECT_TRUE(spec.attention_bias);
  EXPECT_TRUE(spec.yarn_positions);
  EXPECT_FALSE(
      spec_of<GptOssSpec>(R"({"model_type": "gpt_oss", "rope_parameters": {"rope_type": "default"}})").yarn_positions);
}

TEST(HfExperts, DeepseekV2ChoosesGroupsIfTold) {
  const auto greedy = spec_of<DeepseekV2Spec>(
      R"({"model_type": "deepseek_v2", "num_experts_per_tok": 6, "q_lora_rank": null, "n_group": 8})");
  EXPECT_FALSE(greedy.latent.q_lora_rank.has_value());
  EXPECT_EQ(greedy.n_group, 0);
  EXPECT_EQ(greedy.head_dim, 64) << "qk_rope_head_dim";
  const auto groups = spec_of<DeepseekV2Spec>(
      R"({"model_type": "deepseek_v2", "num_experts_per_tok": 6, "topk_method": "group_limited_greedy",
          "n_group": 8, "topk_group": 3, "rope_scaling": {"type": "yarn", "factor": 40}})");
  EXPECT_EQ(groups.latent.q_lora_rank, 1536);
  EXPECT_EQ(groups.n_group, 8);
  EXPECT_EQ(groups.topk_group, 3);
  EXPECT_TRUE(groups.yarn_positions);
}

TEST(HfExperts, DeepseekV3DefaultsAreThoseOfTheModel) {
  const auto spec = spec_of<DeepseekV3Spec>(R"({"model_type": "deepseek_v3"})");
  EXPECT_EQ(spec.num_hidden_layers, 61);
  EXPECT_EQ(spec.first_k_dense_replace, 3);
  EXPECT_EQ(spec.experts.count, 256);
  EXPECT_EQ(spec.n_group, 8);
  EXPECT_EQ(spec.topk_group, 4);
  EXPECT_TRUE(spec.norm_topk_prob);
  EXPECT_TRUE(spec.rope_interleave);
}

TEST(HfExperts, Qwen2MoeHasAnMlpBesideThem) {
  const auto spec = spec_of<Qwen2MoeSpec>(R"({"model_type": "qwen2_moe", "num_hidden_layers": 3,
      "mlp_only_layers": [1]})");
  EXPECT_EQ(spec.experts.count, 60);
  EXPECT_EQ(spec.experts.intermediate_size, 1408);
  EXPECT_EQ(spec.shared_expert_intermediate_size, 5632);
  EXPECT_TRUE(spec.qkv_bias);
  EXPECT_FALSE(spec.sliding_window.has_value());
  EXPECT_THAT(spec.dense_layers, ElementsAre(false, true, false));
  EXPECT_THAT(spec_of<Qwen2MoeSpec>(R"({"model_type": "qwen2_moe", "num_hidden_layers": 4, "use_sliding_window": true,
      "max_window_layers": 2})")
                  .sliding_layers,
              ElementsAre(true, false, false, false));
}

TEST(HfExperts, OlmoeDefaultsAreThoseOfItsClass) {
  const auto spec = spec_of<OlmoeSpec>(R"({"model_type": "olmoe", "clip_qkv": null})");
  EXPECT_EQ(spec.num_key_value_heads, 16);
  EXPECT_EQ(spec.experts.count, 64);
  EXPECT_EQ(spec.experts.per_token, 8);
  EXPECT_EQ(spec.experts.intermediate_size, 2048);
}

TEST(HfExperts, Glm4MoeRotatesHalfOfAHead) {
  const auto spec = spec_of<Glm4MoeSpec>(R"({"model_type": "glm4_moe", "head_dim": 128})");
  EXPECT_EQ(spec.rotary_dim, 64);
  EXPECT_EQ(spec.experts.count, 128);
  EXPECT_EQ(spec.n_group, 1);
  EXPECT_EQ(spec.first_k_dense_replace, 1);
  EXPECT_FALSE(spec.use_qk_norm);
}

TEST(HfExperts, Ernie45MoeStartsDense) {
  const auto spec = spec_of<Ernie45MoeSpec>(R"({"model_type": "ernie4_5_moe", "num_hidden_layers": 4,
      "moe_layer_end_index": 2})");
  EXPECT_THAT(spec.dense_layers, ElementsAre(true, false, false, true));
  EXPECT_EQ(spec.experts.count, 64);
  EXPECT_EQ(spec.experts.per_token, 6);
  EXPECT_EQ(spec.moe_num_shared_experts, 2);
  EXPECT_TRUE(spec.tie_word_embeddings);
}

TEST(HfExperts, KimiK2IsComputedAsDeepseekV3) {
  const ModelSpec model = read(R"({"model_type": "kimi_k2", "n_routed_experts": 384, "n_group": 1, "topk_group": 1})");
  EXPECT_EQ(model.architecture.as<DeepseekV3Spec>().experts.count, 384);
  EXPECT_THAT(model.assumptions, testing::Contains(testing::HasSubstr("kimi_k2 is computed as deepseek_v3 is")));
}

TEST(HfExperts, MiniMaxM2RotatesWholeHeadsUnlessTold) {
  const auto spec = spec_of<MiniMaxM2Spec>(R"({"model_type": "minimax_m2", "rotary_dim": 64})");
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_EQ(spec.rotary_dim, 128);
  EXPECT_EQ(spec.experts.count, 256);
  EXPECT_EQ(spec_of<MiniMaxM2Spec>(R"({"model_type": "minimax_m2", "rope_parameters": {"partial_rotary_factor": 0.5}})")
                .rotary_dim,
            64);
}

struct Wrong {
  const char* name;
  const char* text;
  const char* message;
};

class WrongExperts : public testing::TestWithParam<Wrong> {};

TEST_P(WrongExperts, GiveOneClearLine) {
  EXPECT_EQ(error_text([] { static_cast<void>(read(GetParam().text)); }), GetParam().message);
}

INSTANTIATE_TEST_SUITE_P(
    Configs, WrongExperts,
    testing::Values(
        Wrong{"more_than_there_are", R"({"model_type": "mixtral", "num_experts_per_tok": 9})",
              "config.json: /num_experts_per_tok: found 9; accepted: up to num_local_experts (8)"},
        Wrong{"too_many", R"({"model_type": "qwen3_moe", "num_experts": 1024})",
              "config.json: /num_experts: found 1024; accepted: an integer from 1 to 1023"},
        Wrong{"auxiliary_loss", R"({"model_type": "mixtral", "output_router_logits": true})",
              "config.json: /output_router_logits: true is not modelled for mixtral yet"},
        Wrong{"clipped", R"({"model_type": "olmoe", "clip_qkv": 8})",
              "config.json: /clip_qkv: is not modelled for olmoe yet; remove the key to see the plain model"},
        Wrong{"qwen2_auxiliary_loss", R"({"model_type": "qwen2_moe", "output_router_logits": true})",
              "config.json: /output_router_logits: true is not modelled for qwen2_moe yet"},
        Wrong{"glm_groups", R"({"model_type": "glm4_moe", "head_dim": 128, "topk_group": 2})",
              "config.json: /topk_group: found 2; accepted: up to n_group (1)"},
        Wrong{"ernie_choice", R"({"model_type": "ernie4_5_moe", "moe_k": 65})",
              "config.json: /moe_k: found 65; accepted: an integer from 1 to 64"},
        Wrong{"minimax_jitter", R"({"model_type": "minimax_m2", "router_jitter_noise": 0.1})",
              "config.json: /router_jitter_noise: noise before the router is not modelled; accepted: 0"},
        Wrong{"jitter", R"({"model_type": "mixtral", "router_jitter_noise": 0.1})",
              "config.json: /router_jitter_noise: noise before the router is not modelled; accepted: 0"},
        Wrong{"dense_layer_list", R"({"model_type": "qwen3_moe", "mlp_only_layers": [0.5]})",
              "config.json: /mlp_only_layers/0: found 0.5; accepted: an integer from 0 to 2000"},
        Wrong{"window", R"({"model_type": "gpt_oss", "sliding_window": null})",
              "config.json: /sliding_window: null; accepted: a size, since the model has sliding layers"},
        Wrong{"no_default", R"({"model_type": "deepseek_v2"})", "config.json: missing key \"num_experts_per_tok\""},
        Wrong{"method", R"({"model_type": "deepseek_v2", "num_experts_per_tok": 6, "topk_method": "noaux_tc"})",
              "config.json: /topk_method: found the string \"noaux_tc\"; accepted: one of greedy, "
              "group_limited_greedy"},
        Wrong{
            "key_heads", R"({"model_type": "deepseek_v3", "num_key_value_heads": 64})",
            "config.json: /num_key_value_heads: found 64; accepted: 128 (num_attention_heads), since latent attention "
            "makes keys and values for every head"},
        Wrong{"groups", R"({"model_type": "deepseek_v3", "n_group": 7})",
              "config.json: /n_routed_experts: found 256; accepted: a multiple of n_group (7)"},
        Wrong{"small_groups", R"({"model_type": "deepseek_v3", "n_group": 256})",
              "config.json: /n_group: leaves 1 experts for each group; accepted: a number that leaves 2 or more"},
        Wrong{"chosen_groups", R"({"model_type": "deepseek_v3", "topk_group": 9})",
              "config.json: /topk_group: found 9; accepted: up to n_group (8)"},
        Wrong{"overflow", R"({"model_type": "mixtral", "intermediate_size": 1099511627776, "hidden_size": 32768})",
              "config.json: the parameters need more than 2^63 - 1 bytes: check layers, vocabulary and hidden size"}),
    [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace memcalc
