// train/tp_plan: which parameters transformers' plans of tensor parallelism name.
#include "memcalc/train/tp_plan.h"

#include <gtest/gtest.h>

namespace memcalc {
namespace {

TEST(TpPlanTest, LayersAndTheHeadAreNamedEmbeddingsAndNormsAreNot) {
  EXPECT_TRUE(is_in_tp_plan("llama", "model.layers.11.self_attn.q_proj.weight"));
  EXPECT_TRUE(is_in_tp_plan("qwen2", "model.layers.0.self_attn.k_proj.bias"));
  EXPECT_TRUE(is_in_tp_plan("llama", "lm_head.weight"));
  EXPECT_FALSE(is_in_tp_plan("llama", "model.embed_tokens.weight"));
  EXPECT_FALSE(is_in_tp_plan("llama", "model.layers.0.input_layernorm.weight"));
}

TEST(TpPlanTest, FamiliesHavePlansOfTheirOwn) {
  EXPECT_TRUE(is_in_tp_plan("gemma2", "model.embed_tokens.weight"));
  EXPECT_TRUE(is_in_tp_plan("qwen3", "model.layers.0.self_attn.q_norm.weight"));
  EXPECT_FALSE(is_in_tp_plan("olmo2", "model.layers.0.self_attn.q_norm.weight"));
  EXPECT_TRUE(is_in_tp_plan("gpt_neox", "gpt_neox.layers.0.mlp.dense_h_to_4h.bias"));
  EXPECT_TRUE(is_in_tp_plan("mixtral", "model.layers.0.mlp.experts.gate_up_proj"));
  EXPECT_FALSE(is_in_tp_plan("mixtral", "model.layers.0.mlp.gate.weight"));
}

TEST(TpPlanTest, FamiliesWithoutAPlanHaveNone) {
  EXPECT_FALSE(is_in_tp_plan("opt", "model.decoder.layers.0.self_attn.q_proj.weight"));
  EXPECT_FALSE(is_in_tp_plan("bert", "bert.encoder.layer.0.output.dense.weight"));
}

}  // namespace
}  // namespace memcalc
