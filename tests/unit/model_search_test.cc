// spec/model_search: which models of a list somebody looks for.
#include "memcalc/spec/model_search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace memcalc {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> names_found(const ModelSearch& search) {
  const std::vector<ModelListing> models = {
      {.name = "bert-base",
       .model_type = "bert",
       .parameters = 109'000'000,
       .tasks = {Task::kSequenceClassification, Task::kMaskedLm},
       .aliases = {"google-bert/bert-base-uncased"}},
      {.name = "qwen3-8b", .model_type = "qwen3", .parameters = 8'190'735'360, .tasks = {Task::kCausalLm}},
      {.name = "unknown-size", .model_type = "llama", .tasks = {Task::kCausalLm}, .text_of = {"a/Sees_Images"}}};
  std::vector<std::string> names;
  for (const ModelListing& each : found(models, search)) names.push_back(each.name);
  return names;
}

TEST(ModelSearch, EveryWordIsInSomeName) {
  EXPECT_THAT(names_found({}), ElementsAre("bert-base", "qwen3-8b", "unknown-size"));
  EXPECT_THAT(names_found({.text = "UNCASED google"}), ElementsAre("bert-base"));
  EXPECT_THAT(names_found({.text = "sees images"}), ElementsAre("unknown-size"));
  EXPECT_THAT(names_found({.text = "qwen uncased"}), ElementsAre());
}

TEST(ModelSearch, ByTaskAndSize) {
  EXPECT_THAT(names_found({.task = Task::kMaskedLm}), ElementsAre("bert-base"));
  EXPECT_THAT(names_found({.fewest_parameters = 1'000'000'000}), ElementsAre("qwen3-8b"));
  EXPECT_THAT(names_found({.most_parameters = 8'190'735'360}), ElementsAre("bert-base", "qwen3-8b"));
}

}  // namespace
}  // namespace memcalc
