#include "memcalc/plan/measured_row.h"
#include "memcalc/families/gpt2/spec.h"
#include "memcalc/families/llama/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "memcalc/base/error.h"
#include "memcalc/plan/check.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using ::testing::HasSubstr;

constexpr const char* kModels = R"({"models": {"small": {"task": "causal", "config": {"model_type": "llama",
    "vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 256,
    "tie_word_embeddings": true}}}})";

using test::registry;

Question question_in(const std::string& row) {
  const NamedConfigs configs(JsonDocument::parse(kModels, "models"));
  return question_of(request_of_row(JsonDocument::parse(row, "row").root()), registry(), configs);
}

TEST(MeasuredRow, AsksForItsRunOnItsCard) {
  const Question question = question_in(
      R"({"id": "a", "gpu": "NVIDIA H200", "run": {"model": "small", "layers": 2, "tie": false, "batch_size": 3,
          "sequence_length": 64, "loop": "bare", "optimizer": "sgd"}, "harness": {"steps": 3}, "peak_allocated": 1})");
  const auto& llama = question.model.architecture.as<LlamaSpec>();
  EXPECT_EQ(llama.num_hidden_layers, 2);
  EXPECT_FALSE(llama.tie_word_embeddings);
  EXPECT_EQ(question.model.reference, "small");
  EXPECT_EQ(question.run.run.batch_size, 3);
  EXPECT_EQ(question.run.run.training().optimizer, Optimizer::kSgd);
  EXPECT_EQ(question.device.name, "h200-sxm");
}

TEST(MeasuredRow, IsOfTheRegistryWhereTheModelsFileDoesNotKnowTheName) {
  const Question question = question_in(R"({"id": "a", "run": {"model": "gpt2", "layers": 3}})");
  EXPECT_EQ(question.model.architecture.as<Gpt2Spec>().n_layer, 3);
  EXPECT_TRUE(question.device_assumed);
}

TEST(MeasuredRow, RefusesWhatItCannotSay) {
  const auto message_of = [](const std::string& row) -> std::string {
    try {
      (void)question_in(row);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(message_of(R"({"id": "a", "run": {"model": "small", "hidden": 64}})"), HasSubstr("hidden=64"));
  EXPECT_THAT(message_of(R"({"id": "a", "run": {"model": "small", "batch": 4}})"), HasSubstr("batch"));
  EXPECT_THAT(message_of(R"({"id": "a"})"), HasSubstr("run"));
}

TEST(CheckedRows, CompareEachWithItsOwnRank) {
  const std::string run =
      R"("run": {"model": "small", "batch_size": 1, "sequence_length": 64, "loop": "bare", "gpus": 2, "pp": 2})";
  const std::string rows = R"({"id": "first", "rank": 0, )" + run + "}\n" + R"({"id": "last", "rank": 1, )" + run +
                           "}\n" + R"({"id": "other", "not_modelled": "the whole model stood beside the stage", )" +
                           run + "}\n";
  const std::vector<CheckedRow> checked = check_rows(registry(), rows, "rows", kModels);
  ASSERT_EQ(checked.size(), 3U);
  EXPECT_EQ(checked[0].refused, "");
  EXPECT_NE(checked[0].predicted.peak_allocated, checked[1].predicted.peak_allocated);
  EXPECT_THAT(checked[2].refused, HasSubstr("beside the stage"));
}

TEST(CheckedRows, MustHaveARun) {
  EXPECT_THROW((void)check_rows(registry(), R"({"id": "a", "case": {}})", "rows", ""), Error);
}

}  // namespace
}  // namespace memcalc
