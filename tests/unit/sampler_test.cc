// train/data/sampler.h against the orders that transformers' Trainer and accelerate gave (unit/recorded_batches.py).
#include "memcalc/train/data/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "memcalc/base/error.h"
#include "unit/recorded_batches.h"

namespace memcalc {
namespace {

using testing::ElementsAre;

/// Each batch as its size and its samples, as the recording hashes them.
void append(std::vector<std::uint64_t>& values, const Batches& batches) {
  for (std::size_t batch = 0; batch < batches.size(); ++batch) {
    values.push_back(batches[batch].size());
    values.insert(values.end(), batches[batch].begin(), batches[batch].end());
  }
}

std::uint64_t hash_of_batches(const Batches& batches) {
  std::vector<std::uint64_t> values;
  append(values, batches);
  return test::hash_of(values);
}

TEST(Sampler, TheEpochsOfTheMeasuredRunComeInTheTrainersOrder) {
  TrainSampler sampler(test::kTrainLengths, {});
  for (std::size_t epoch = 0; epoch < std::size(test::kGlueEpochs); ++epoch) {
    const auto order = sampler.next_epoch();
    if (epoch == 0) {
      EXPECT_THAT(order, testing::ElementsAreArray(test::kGlueOrder));
    }
    const Batches batches = loaded_batches(order, {.batch_size = 32});
    EXPECT_EQ(batches.size(), 11U);
    EXPECT_EQ(batches[10].size(), 16U);
    EXPECT_EQ(hash_of_batches(batches), test::kGlueEpochs[epoch]) << epoch;
  }
}

TEST(Sampler, DataSeedAndDropLastAreTheTrainers) {
  TrainSampler sampler(test::kTrainLengths, {.data_seed = 7});
  for (const std::uint64_t hash : test::kDropLastEpochs) {
    EXPECT_EQ(hash_of_batches(loaded_batches(sampler.next_epoch(), {.batch_size = 5, .drop_last = true})), hash);
  }
}

TEST(Sampler, GroupsByLengthAreTheTrainersWithAndWithoutEvaluation) {
  for (const auto& recorded : test::kGroups) {
    SCOPED_TRACE(testing::Message() << recorded.n << " samples, batch " << recorded.batch_size);
    const std::span<const std::int32_t> lengths = std::span(test::kTrainLengths).first(recorded.n);
    SamplerOptions options{.strategy = SamplingStrategy::kGroupByLength,
                           .seed = recorded.seed,
                           .group_size = recorded.batch_size * recorded.accumulation};
    TrainSampler sampler(lengths, options);
    options.group_size = 8;
    std::vector<std::uint64_t> values;
    std::size_t batches = 0;
    for (int epoch = 0; epoch < 2; ++epoch) {
      const Batches trained = loaded_batches(sampler.next_epoch(), {.batch_size = recorded.batch_size});
      append(values, trained);
      batches += trained.size();
      if (!recorded.evaluated) continue;
      sampler.evaluate();
      const Batches evaluated = loaded_batches(evaluation_order(test::kEvalLengths, options), {.batch_size = 8});
      append(values, evaluated);
      batches += evaluated.size();
    }
    EXPECT_EQ(batches, recorded.batches);
    EXPECT_EQ(test::hash_of(values), recorded.hash);
  }
}

TEST(Sampler, EachProcessGetsTheBatchesThatAccelerateGivesIt) {
  for (const auto& recorded : test::kShards) {
    SCOPED_TRACE(testing::Message() << recorded.n << " samples, batch " << recorded.batch_size << ", "
                                    << recorded.processes << " processes");
    const std::vector<std::int32_t> lengths(recorded.n, 1);
    std::vector<std::uint64_t> values;
    for (std::int64_t rank = 0; rank < recorded.processes; ++rank) {
      TrainSampler sampler(lengths, {});
      for (int epoch = 0; epoch < 2; ++epoch) {
        const Batches batches = loaded_batches(sampler.next_epoch(), {.batch_size = recorded.batch_size,
                                                                      .drop_last = recorded.drop_last,
                                                                      .processes = recorded.processes,
                                                                      .rank = rank});
        values.push_back(batches.size());
        append(values, batches);
      }
    }
    EXPECT_EQ(test::hash_of(values), recorded.hash);
  }
}

TEST(Sampler, ASequentialTrainingAndAnEvaluationKeepTheOrderOfTheDataSet) {
  const std::vector<std::int32_t> lengths{5, 9, 7};
  TrainSampler sampler(lengths, {.strategy = SamplingStrategy::kSequential});
  EXPECT_THAT(sampler.next_epoch(), ElementsAre(0, 1, 2));
  EXPECT_THAT(sampler.next_epoch(), ElementsAre(0, 1, 2));
  EXPECT_THAT(evaluation_order(lengths, {}), ElementsAre(0, 1, 2));
}

TEST(Sampler, TheLongestSampleOfAGroupedEpochComesFirst) {
  std::vector<std::int32_t> lengths(4000);
  for (std::size_t i = 0; i < lengths.size(); ++i) lengths[i] = static_cast<std::int32_t>(1 + i * 37 % 4000);
  const auto order =
      TrainSampler(lengths, {.strategy = SamplingStrategy::kGroupByLength, .group_size = 8}).next_epoch();
  EXPECT_EQ(lengths[order.front()], 4000);
  std::vector<std::uint32_t> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  for (std::uint32_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], i);
}

TEST(Sampler, WhatHasNoOrderIsABugOfTheCaller) {
  EXPECT_THROW(TrainSampler({}, {}), Error);
  const std::vector<std::uint32_t> order{0, 1};
  EXPECT_THROW((void)loaded_batches(order, {.batch_size = 0}), Error);
  EXPECT_THROW((void)loaded_batches(order, {.processes = 2, .rank = 2}), Error);
}

}  // namespace
}  // namespace memcalc
