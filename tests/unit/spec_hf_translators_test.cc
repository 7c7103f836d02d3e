// config.json of the encoder-decoders that were made of BART: defaults and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "memcalc/families/bart/spec.h"
#include "memcalc/spec/hf_config.h"
#include "memcalc/spec/json_reader.h"
#include "support/error_text.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

ModelSpec read(const std::string& text) {
  const JsonDocument document = JsonDocument::parse(text, "config.json");
  return model_from_hf_config(document.root(), "test");
}

BartSpec spec_of(const std::string& text) { return read(text).architecture.as<BartSpec>(); }

std::string refusal_of(const std::string& text) {
  return error_text([&] { (void)read(text); });
}

TEST(HfTranslators, HaveBartsSizesByDefault) {
  for (const std::string type : {"mbart", "pegasus"}) {
    SCOPED_TRACE(type);
    const BartSpec spec = spec_of(R"({"model_type": ")" + type + R"("})");
    EXPECT_EQ(spec.vocab_size, 50265);
    EXPECT_EQ(spec.d_model, 1024);
    EXPECT_EQ(spec.encoder_layers, 12);
    EXPECT_EQ(spec.activation_function, "gelu");
    EXPECT_EQ(spec.dropout, 0.1);
    EXPECT_TRUE(spec.tie_word_embeddings);
  }
}

TEST(HfTranslators, M2M100SkipsLayersByDefault) {
  const ModelSpec model = read(R"({"model_type": "m2m_100"})");
  const auto spec = model.architecture.as<BartSpec>();
  EXPECT_EQ(spec.vocab_size, 128112);
  EXPECT_EQ(spec.activation_function, "relu");
  EXPECT_EQ(spec.attention_dropout, 0.1);
  EXPECT_THAT(model.assumptions, Contains(HasSubstr("encoder_layerdrop skips no layer")));
  EXPECT_THAT(refusal_of(R"({"model_type": "m2m_100", "d_model": 2, "encoder_attention_heads": 1,
      "decoder_attention_heads": 1})"),
              HasSubstr("/d_model: found 2; accepted: an even number of 4 or more"));
}

TEST(HfTranslators, MarianSharesItsEmbeddings) {
  EXPECT_EQ(spec_of(R"({"model_type": "marian"})").vocab_size, 58101);
  EXPECT_THAT(refusal_of(R"({"model_type": "marian", "share_encoder_decoder_embeddings": false})"),
              HasSubstr("share_encoder_decoder_embeddings"));
  EXPECT_THAT(refusal_of(R"({"model_type": "marian", "vocab_size": 1000, "decoder_vocab_size": 900})"),
              HasSubstr("/decoder_vocab_size: found another size than vocab_size; accepted: 1000"));
}

}  // namespace
}  // namespace memcalc
