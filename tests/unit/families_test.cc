// The families' records: what each must have, and that the list is one by which a name is found.
#include "memcalc/spec/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "memcalc/families/gpt2/spec.h"
#include "memcalc/families/llama/spec.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/program.h"

namespace memcalc {
namespace {

TEST(Families, AreInTheOrderOfTheirNames) {
  EXPECT_TRUE(std::is_sorted(families().begin(), families().end(),
                             [](const Family* a, const Family* b) { return a->model_type < b->model_type; }));
}

TEST(Families, AreFoundByTheirNames) {
  for (const Family* family : families()) EXPECT_EQ(find_family(family->model_type), family) << family->model_type;
  EXPECT_EQ(find_family("no_such_family"), nullptr);
  EXPECT_EQ(find_family(""), nullptr);
}

TEST(Families, CanBeBuiltAndSayWhatWasMeasured) {
  for (const Family* family : families()) {
    EXPECT_NE(family->build, nullptr) << family->model_type;
    if (family->model_type == "litgpt") continue;  // read from a lit_config.json, measured by its authors
    EXPECT_NE(family->read, nullptr) << family->model_type;
  }
}

TEST(Families, AnswerQuestionsWhereTheirRecordsSaySo) {
  for (const Family* family : families()) {
    if (!family->answers_questions) continue;
    EXPECT_TRUE(family->kind == FamilyKind::kEncoder || family->kind == FamilyKind::kDecoder) << family->model_type;
    EXPECT_TRUE(family->tasks.empty()) << family->model_type << ": its own list would hide it";
  }
  const ModelSpec llama{.name = "made", .model_type = "llama", .architecture = LlamaSpec{}};
  EXPECT_EQ(tasks_of(llama).back(), Task::kQuestionAnswering);
  const ModelSpec phi{.name = "made", .model_type = "phi3", .architecture = LlamaSpec{}};
  EXPECT_EQ(tasks_of(phi).back(), Task::kSequenceClassification);
}

TEST(Families, OfAProgramOrOfLayersThereIsNone) {
  ModelSpec model{.name = "recorded", .model_type = "llama", .architecture = LlamaSpec{}};
  EXPECT_NE(family_of(model), nullptr);
  model.architecture = ProgramSpec{};
  EXPECT_EQ(family_of(model), nullptr);
}

TEST(Architecture, KeepsItsOwnValuesWhenACopyChanges) {
  Architecture llama = LlamaSpec{{.num_hidden_layers = 4, .num_labels = 2}};
  Architecture copy = llama;
  copy.set_layers(2);
  copy.set_labels(5);
  EXPECT_EQ(llama.as<LlamaSpec>().num_hidden_layers, 4);
  EXPECT_EQ(copy.as<LlamaSpec>().num_hidden_layers, 2);
  EXPECT_EQ(copy.as<LlamaSpec>().num_labels, 5);
  copy.change<LlamaSpec>().hidden_size = 8;
  EXPECT_EQ(llama.dimensions().hidden_size, 0);
  EXPECT_EQ(copy.dimensions().hidden_size, 8);
}

TEST(Architecture, IsOfOneTypeExactly) {
  const Architecture gpt2 = Gpt2Spec{.n_positions = 1024};
  EXPECT_TRUE(gpt2.is<Gpt2Spec>());
  EXPECT_FALSE(gpt2.is<LlamaSpec>());
  EXPECT_EQ(gpt2.get_if<RotaryDecoderSpec>(), nullptr);
  EXPECT_EQ(gpt2.dimensions().position_limit, 1024);
  EXPECT_FALSE(Architecture().is<Gpt2Spec>());
  EXPECT_EQ(Architecture().dimensions().layers, std::nullopt);
}

TEST(Architecture, TurnsThePatternOfLayersWithTheirNumber) {
  struct Sliding {
    std::int64_t num_hidden_layers = 4;
    std::vector<bool> sliding_layers = {true, false, true, false};
  };
  Architecture model = Sliding{};
  model.set_layers(2);
  EXPECT_EQ(*model.dimensions().sliding_layers, (std::vector<bool>{true, false}));
}

}  // namespace
}  // namespace memcalc
