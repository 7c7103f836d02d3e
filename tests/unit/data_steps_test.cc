// train/data/data_steps: which steps of a training with real lengths are simulated.
#include "memcalc/train/data/data_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "support/rule_case.h"

namespace memcalc {
namespace {

RunSpec run_of(const std::string& lengths, std::int64_t batch, std::optional<std::int64_t> steps = {}) {
  RunOptions options{.batch_size = batch, .loop = Loop::kTrainer};
  options.lengths = lengths;
  options.steps = steps;
  return resolve(test::model_of("gpt2"), options).run;
}

TEST(DataSteps, OfAnEpochAllAreSimulatedWhereTheyAreFew) {
  const DataSteps steps = data_steps(run_of("lognormal:20,0.5,64,100", 8));
  EXPECT_EQ(steps.all, 13);
  ASSERT_EQ(steps.simulated.size(), 13U);
  EXPECT_EQ(steps.simulated.back().number, 12);
  EXPECT_EQ(steps.simulated.back().micro_batches.front().rows, 4);
  EXPECT_LT(steps.median, steps.simulated.size());
}

TEST(DataSteps, OfManyTheFirstAndTheLongest) {
  const RunSpec run = run_of("lognormal:20,0.5,64,1000", 2);
  const DataSteps all = data_steps(run), some = data_steps(run, 1, 0, 20);
  EXPECT_EQ(all.simulated.size(), 500U);
  EXPECT_EQ(some.all, 500);
  ASSERT_EQ(some.simulated.size(), 20U);
  for (std::size_t i = 0; i < 10; ++i) EXPECT_EQ(some.simulated[i].number, static_cast<std::int64_t>(i));
  EXPECT_TRUE(std::is_sorted(some.simulated.begin(), some.simulated.end(),
                             [](const DataStep& a, const DataStep& b) { return a.number < b.number; }));
  const auto longest = [](const DataSteps& steps) {
    std::int64_t columns = 0;
    for (const DataStep& step : steps.simulated) columns = std::max(columns, step.largest().columns);
    return columns;
  };
  EXPECT_EQ(longest(some), longest(all));
}

// In the Trainer's order, unlike GRPO's prompts.
TEST(DataSteps, OnlineDpoPadsThePromptsOfABatchAndAddsTheCompletion) {
  RunOptions options{.batch_size = 4, .loop = Loop::kTrlOnlineDpo, .lora_rank = 8};
  options.completion_length = 16;
  options.lengths = "lognormal:20,0.5,64,40";
  const DataSteps steps = data_steps(resolve(test::model_of("gpt2"), options).run);
  const DataSteps prompts = data_steps(run_of("lognormal:20,0.5,64,40", 4));
  ASSERT_EQ(steps.simulated.size(), prompts.simulated.size());
  for (std::size_t i = 0; i < steps.simulated.size(); ++i) {
    const BatchShape &shape = steps.simulated[i].micro_batches.front(),
                     &prompt = prompts.simulated[i].micro_batches.front();
    EXPECT_EQ(shape.columns, prompt.columns + 16);
    EXPECT_EQ(shape.padded, prompt.padded);
  }
}

TEST(DataSteps, EachProcessHasBatchesOfItsOwnAndAllHaveAsMany) {
  const RunSpec run = run_of("lognormal:20,0.5,64,100", 8);
  const DataSteps first = data_steps(run, 2, 0), second = data_steps(run, 2, 1);
  EXPECT_EQ(first.all, 7);
  EXPECT_EQ(second.all, 7);
  EXPECT_NE(first.simulated.front().micro_batches, second.simulated.front().micro_batches);
}

TEST(DataSteps, StepsThatWereAskedForGoOnInTheNextEpoch) {
  const DataSteps steps = data_steps(run_of("lognormal:20,0.5,64,100", 8, 20));
  EXPECT_EQ(steps.all, 20);
  EXPECT_EQ(steps.simulated.size(), 20U);
  for (const DataStep& step : steps.simulated) {
    EXPECT_EQ(step.begins_epoch, step.number % 13 == 0) << "an epoch has 13 steps: " << step.number;
  }
}

/// As trl's RepeatSampler gave them (num_generations 2, steps_per_generation 2, seed 42, two epochs).
TEST(DataSteps, PromptsOfAGenerationStandTogetherAsTrlsSamplerHasThem) {
  RunOptions options{.batch_size = 2, .loop = Loop::kTrlGrpo, .accumulation_steps = 2};
  options.completion_length = 5;
  options.generations = 2;
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "memcalc_prompts.txt";
  std::ofstream(path) << "10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20\n";
  options.lengths = path.string();
  options.steps = 7;
  const RunSpec run = resolve(test::model_of("gpt2"), options).run;
  EXPECT_EQ(run.sequence_length, 25);
  std::vector<std::int64_t> columns;
  for (const DataStep& step : data_steps(run).simulated) {
    ASSERT_EQ(step.micro_batches.size(), 2U);
    EXPECT_EQ(step.micro_batches[0], step.micro_batches[1]) << "of one generation";
    EXPECT_TRUE(step.largest().padded);
    columns.push_back(step.largest().columns - 5);
  }
  EXPECT_EQ(columns, (std::vector<std::int64_t>{18, 19, 20, 17, 15, 15, 20}));
  // The first of two processes has the first prompt of each pair.
  RunSpec parallel = run;
  parallel.training().generations = 4;
  EXPECT_EQ(data_steps(parallel, 2, 0).simulated.front().largest().columns - 5, 16);
  EXPECT_EQ(data_steps(parallel, 2, 1).simulated.front().largest().columns - 5, 18);
  EXPECT_FALSE(data_steps(parallel, 2, 1).simulated.front().largest().padded) << "one prompt";
}

std::int64_t padded_tokens(const RunOptions& asked) {
  RunOptions options = asked;
  options.batch_size = 8;
  options.loop = Loop::kTrainer;
  options.lengths = "lognormal:60,0.8,512,400";
  std::int64_t sum = 0;
  for (const DataStep& step : data_steps(resolve(test::model_of("gpt2"), options).run).simulated) {
    sum += step.largest().rows * step.largest().columns;
  }
  return sum;
}

TEST(DataSteps, GroupedByLengthBatchesHaveLessPadding) {
  EXPECT_LT(padded_tokens({.group_by_length = true}), padded_tokens({}) * 3 / 4);
}

/// Of the median step of a training whose samples are all alike.
std::int64_t tokens_of(Loop loop, const std::string& samples, const std::string& model, std::int64_t accumulation = 1) {
  RunOptions options{.batch_size = 2, .loop = loop, .accumulation_steps = accumulation};
  if (loop == Loop::kSentenceTransformer) options.hard_negatives = 1;
  if (model == "t5-base") options.task = Task::kSeq2Seq;
  const std::filesystem::path path = std::filesystem::path(testing::TempDir()) / "memcalc_step_tokens.txt";
  std::ofstream(path) << samples;
  options.lengths = path.string();
  return data_steps(resolve(test::model_of(model), options).run).tokens;
}

TEST(DataSteps, TheAverageStepHasTheTokensThatTheModelIsGiven) {
  EXPECT_EQ(tokens_of(Loop::kTrainer, "30 8\n", "gpt2"), 2 * 30);
  EXPECT_EQ(tokens_of(Loop::kTrainer, "30 8\n", "gpt2", 4), 4 * 2 * 30) << "four micro-batches";
  EXPECT_EQ(tokens_of(Loop::kTrainer, "30/7\n30/7\n", "t5-base"), 2 * (30 + 7)) << "sources and labels";
  EXPECT_EQ(tokens_of(Loop::kTrlDpo, "30/7/10\n30/7/10\n", "gpt2"), 2 * 2 * 40) << "both padded to the longer";
  EXPECT_EQ(tokens_of(Loop::kSentenceTransformer, "12/9/10\n12/9/10\n", "bert-base"), 2 * (12 + 9 + 10));
}

TEST(DataSteps, ColumnsAreRoundedUpToAMultiple) {
  RunOptions options{.batch_size = 8, .loop = Loop::kTrainer};
  options.lengths = "lognormal:60,0.8,500,100";
  options.pad_to_multiple_of = 64;
  for (const DataStep& step : data_steps(resolve(test::model_of("gpt2"), options).run).simulated) {
    EXPECT_EQ(step.largest().columns % 64, 0);
  }
}

TEST(DataSteps, AnotherSeedGivesAnotherOrder) { EXPECT_NE(padded_tokens({.seed = 1}), padded_tokens({})); }

TEST(EvaluationBatches, AreOfTheFirstSamplesInTheirOrder) {
  RunSpec run = run_of("lognormal:20,0.5,64,100", 8);
  run.training().evaluation = {.batch_size = 4, .samples = 10};
  const std::vector<DataStep> batches = evaluation_batches(run);
  ASSERT_EQ(batches.size(), 3U);
  EXPECT_EQ(batches.back().micro_batches.front().rows, 2);
  const std::vector<std::int32_t>& tokens = run.training().lengths->samples->tokens;
  EXPECT_EQ(batches.front().largest().columns, *std::max_element(tokens.begin(), tokens.begin() + 4));
  EXPECT_EQ(evaluation_batches(run, 2, 1).size(), 2U) << "each process has as many";
}

TEST(EvaluationBatches, OfManyTheFirstAndTheLongestAreExecuted) {
  RunSpec run = run_of("lognormal:20,0.5,64,1000", 8);
  run.training().evaluation = {.batch_size = 2, .samples = 3000};
  const std::vector<DataStep> all = evaluation_batches(run, 1, 0, 5000), some = evaluation_batches(run, 1, 0, 20);
  EXPECT_EQ(all.size(), 1500U) << "the data begins anew where the set is longer";
  ASSERT_EQ(some.size(), 20U);
  const auto longest = [](const std::vector<DataStep>& batches) {
    std::int64_t columns = 0;
    for (const DataStep& each : batches) columns = std::max(columns, each.largest().columns);
    return columns;
  };
  EXPECT_EQ(longest(some), longest(all));
}

}  // namespace
}  // namespace memcalc
