// train/data/answers.h against the examples of TRL's collators (trl 1.16, trainer/dpo_trainer.py, kto_trainer.py,
// reward_trainer.py: their docstrings), and what its trainers drop and cut.
#include "memcalc/train/data/answers.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/train/data/data_steps.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

/// A run on these samples, all of which are one batch in their order or another.
RunSpec run_of(Loop loop, const std::string& text, RunOptions options = {}) {
  const auto path =
      std::filesystem::path(testing::TempDir()) / ("answers_test_" + std::to_string(text.size()) + ".txt");
  std::ofstream(path) << text;
  options.loop = loop;
  options.batch_size = options.batch_size.value_or(2);
  options.lengths = path.string();
  return resolve(test::model_of("gpt2"), options).run;
}

Batches in_order(const RunSpec& run) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < run.training().lengths->samples->tokens.size(); ++i) order.push_back(i);
  return loaded_batches(order, {.batch_size = run.batch_size});
}

TEST(Answers, OfDpoBothAnswersArePaddedToTheLongestOfAll) {
  const RunSpec run = run_of(Loop::kTrlDpo, "3/2/1\n2/1/2\n", {.lora_rank = 8});
  const BatchShape batch = collated_answers(in_order(run), run, 2).front();
  EXPECT_EQ(batch.rows, 2);
  EXPECT_EQ(batch.columns, 5);
  EXPECT_EQ(batch.tokens, 5 + 3 + 4 + 4);
  EXPECT_EQ(batch.valid_labels, 2 + 1 + 1 + 2);
  EXPECT_EQ(batch.answers.first_labels, 3);
  EXPECT_TRUE(batch.padded);
}

TEST(Answers, OfKtoEachPromptGetsTheAnswerBeforeIt) {
  const RunSpec run = run_of(Loop::kTrlKto, "3/2\n2/1\n");
  const BatchShape batch = collated_answers(in_order(run), run, 2).front();
  EXPECT_EQ(batch.columns, 5);
  EXPECT_EQ(batch.valid_labels, 3);
  EXPECT_TRUE(batch.padded);
  EXPECT_EQ(batch.answers.other_columns, 4) << "3 and the 1 of the last, 2 and the 2 of the first";
  EXPECT_EQ(batch.answers.other_labels, 3);
  EXPECT_FALSE(batch.answers.other_padded);
  EXPECT_EQ(batch.answers.first_samples, 1);
  EXPECT_EQ(batch.answers.first_labels, 2);
}

TEST(Answers, AnAnswerOfAnotherMayMakeTheLongestSequence) {
  const RunSpec run = run_of(Loop::kTrlKto, "9/1\n1/8\n");
  EXPECT_EQ(collated_answers(in_order(run), run, 2).front().answers.other_columns, 17);
  EXPECT_EQ(run.sequence_length, 17);
  const RunSpec cut = run_of(Loop::kTrlKto, "9/1\n1/8\n", {.sequence_length = 12});
  EXPECT_EQ(collated_answers(in_order(cut), cut, 2).front().answers.other_columns, 12);
}

TEST(Answers, OfOrpoEachTensorIsPaddedByItself) {
  const RunSpec run = run_of(Loop::kTrlOrpo, "3/2/1\n2/1/9\n");
  const BatchShape batch = collated_answers(in_order(run), run, 2).front();
  EXPECT_EQ(batch.columns, 5);
  EXPECT_EQ(batch.answers.other_columns, 11);
  EXPECT_EQ(batch.answers.prompt_columns, 3);
  EXPECT_TRUE(batch.padded);
}

TEST(Answers, PromptsThatFillTheSequenceAreDroppedAndOthersCut) {
  const RunSpec run = run_of(Loop::kTrlDpo, "8/1/1\n3/9/2\n4/2/3\n", {.sequence_length = 8, .lora_rank = 8});
  const SampleLengths& samples = *run.training().lengths->samples;
  EXPECT_EQ(samples.tokens, (std::vector<std::int32_t>{8, 6}));
  EXPECT_EQ(samples.rejected, (std::vector<std::int32_t>{5, 7}));
  EXPECT_EQ(run.sequence_length, 8);
  EXPECT_EQ(run.training().completion_length, 5);
  EXPECT_ANY_THROW((void)run_of(Loop::kTrlDpo, "8/1/1\n", {.sequence_length = 8, .lora_rank = 8}));
}

TEST(Answers, ARewardModelDropsSamplesOfWhichOneIsTooLong) {
  const RunSpec run = run_of(Loop::kTrlReward, "4/4/5\n4/4/4\n", {.sequence_length = 8});
  EXPECT_EQ(run.training().lengths->samples->tokens.size(), 1U);
}

TEST(Answers, WithoutAWordOfAnswersTheyHaveTheShareOfCompletion) {
  const RunSpec run =
      run_of(Loop::kTrlDpo, "100\n40\n", {.sequence_length = 100, .completion_length = 25, .lora_rank = 8});
  EXPECT_EQ(run.training().lengths->samples->prompts, (std::vector<std::int32_t>{75, 30}));
}

TEST(Answers, SftTrainsOnTheAnswersAlone) {
  const RunSpec run = run_of(Loop::kTrlSft, "30/7\n12/5\n");
  const DataSteps steps = data_steps(run);
  EXPECT_EQ(steps.simulated.front().micro_batches.front().valid_labels, 12);
}

}  // namespace
}  // namespace memcalc
