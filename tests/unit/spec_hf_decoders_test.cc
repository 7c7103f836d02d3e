// config.json of decoders with rotary positions that came after LLaMA's relatives: defaults and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "memcalc/families/granite/spec.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "support/error_text.h"

namespace memcalc {
namespace {

using ::testing::HasSubstr;

ModelSpec read(const std::string& text) {
  const JsonDocument document = JsonDocument::parse(text, "config.json");
  return model_from_hf_config(document.root(), "test");
}

template <typename Spec>
Spec spec_of(const std::string& text) {
  return read(text).architecture.as<Spec>();
}

std::string refusal_of(const std::string& text) {
  return error_text([&] { (void)read(text); });
}

TEST(HfDecoders, GraniteHasLlamasSizes) {
  const auto spec = spec_of<GraniteSpec>(R"({"model_type": "granite", "logits_scaling": 8.0})");
  EXPECT_EQ(spec.vocab_size, 32000);
  EXPECT_EQ(spec.intermediate_size, 11008);
  EXPECT_EQ(spec.num_key_value_heads, 32);
  EXPECT_EQ(spec.max_position_embeddings, 2048);
  EXPECT_FALSE(spec.attention_bias || spec.mlp_bias || spec.tie_word_embeddings);
  EXPECT_THAT(refusal_of(R"({"model_type": "granite", "hidden_act": "nonsense"})"), HasSubstr("hidden_act"));
}

}  // namespace
}  // namespace memcalc
