// Wholes whose text model alone is modelled: which object of config.json it is, and what the report says of the rest.
#include "memcalc/spec/text_part.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "memcalc/families/glm/spec.h"
#include "memcalc/families/glm4_moe/spec.h"
#include "memcalc/families/qwen/spec.h"
#include "memcalc/spec/hf_config.h"
#include "support/error_text.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

ModelSpec read(const std::string& text) {
  const JsonDocument document = JsonDocument::parse(text, "config.json");
  return model_from_hf_config(document.root(), "config.json");
}

std::string refusal_of(const std::string& text) {
  return error_text([&] { static_cast<void>(read(text)); });
}

TEST(TextPart, OfAThinkerIsTwoObjectsDown) {
  const ModelSpec omni = read(R"({"model_type": "qwen2_5_omni", "thinker_config": {"text_config": {
      "model_type": "qwen2_5_omni_text", "num_hidden_layers": 3, "num_attention_heads": 16, "num_key_value_heads": 4}}})");
  EXPECT_EQ(omni.model_type, "qwen2");
  EXPECT_EQ(omni.architecture.as<Qwen2Spec>().num_hidden_layers, 3);
  EXPECT_THAT(omni.assumptions, Contains(HasSubstr("qwen2_5_omni is its text model alone (qwen2): what hears")));
}

TEST(TextPart, TakesWhatTheWholeSaysForBoth) {
  const ModelSpec kimi = read(R"({"model_type": "kimi_k25", "torch_dtype": "bfloat16",
                                  "text_config": {"model_type": "kimi_k2", "num_hidden_layers": 2}})");
  EXPECT_EQ(kimi.model_type, "deepseek_v3");
  EXPECT_EQ(kimi.checkpoint_dtype, DType::kBFloat16);
  const ModelSpec tied = read(R"({"model_type": "llava_onevision", "tie_word_embeddings": true,
                                  "text_config": {"model_type": "qwen2"}})");
  EXPECT_TRUE(tied.architecture.as<Qwen2Spec>().tie_word_embeddings);
}

TEST(TextPart, OfGlm4vHasBiasesInItsProjections) {
  const ModelSpec glm = read(R"({"model_type": "glm4v", "text_config": {"num_hidden_layers": 2}})");
  EXPECT_TRUE(glm.architecture.as<GlmSpec>().attention_bias);
}

TEST(TextPart, OfBailingHasGlmsNames) {
  const std::string ling =
      R"("model_type": "bailing_moe", "vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512, "num_experts": 12,
      "num_shared_experts": 2, "moe_intermediate_size": 64, "num_experts_per_tok": 2)";
  const ModelSpec model = read(R"({"use_qk_norm": true, )" + ling + "}");
  EXPECT_EQ(model.model_type, "glm4_moe");
  EXPECT_EQ(model.architecture.as<Glm4MoeSpec>().experts.count, 12);
  EXPECT_EQ(model.architecture.as<Glm4MoeSpec>().n_shared_experts, 2);
  EXPECT_THAT(refusal_of("{" + ling + "}"), HasSubstr("/use_qk_norm: a Bailing model without norms"));
}

TEST(TextPart, OfMiniCpmFollowsItsVersion) {
  EXPECT_EQ(read(R"({"model_type": "minicpmv", "version": 2.6})").model_type, "qwen2");
  EXPECT_EQ(read(R"({"model_type": "minicpmo", "version": "4.5"})").model_type, "qwen3");
  EXPECT_THAT(refusal_of(R"({"model_type": "minicpmv", "version": 2.5})"), HasSubstr("accepted: 2.6, 4.0, 4.5"));
}

TEST(TextPart, ThatIsNotModelledIsRefusedByName) {
  EXPECT_THAT(refusal_of(R"({"model_type": "lfm2_vl", "text_config": {"model_type": "zamba2"}})"),
              HasSubstr("zamba2, its text model, is not modelled"));
  // Errors say where in the whole the text model stands.
  EXPECT_THAT(refusal_of(R"({"model_type": "kimi_vl", "text_config": {"num_hidden_layers": 0}})"),
              HasSubstr("config.json: /text_config: /num_hidden_layers"));
}

}  // namespace
}  // namespace memcalc
