// train/data/collator.h against what the collators of transformers and TRL made (unit/recorded_batches.py).
#include "memcalc/train/data/collator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>

#include "memcalc/base/error.h"
#include "unit/recorded_batches.h"

namespace memcalc {
namespace {

void expect_same(std::span<const BatchShape> batches, std::span<const test::RecordedBatch> recorded) {
  ASSERT_EQ(batches.size(), recorded.size());
  for (std::size_t i = 0; i < batches.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "batch " << i);
    EXPECT_EQ(batches[i].rows, recorded[i].rows);
    EXPECT_EQ(batches[i].columns, recorded[i].columns);
    EXPECT_EQ(batches[i].tokens, recorded[i].tokens);
    EXPECT_EQ(batches[i].valid_labels, recorded[i].labels);
    EXPECT_EQ(batches[i].padded, recorded[i].padded != 0);
    EXPECT_EQ(batches[i].sequences, recorded[i].sequences);
    EXPECT_EQ(batches[i].longest, recorded[i].longest);
  }
}

/// The first 20 batches of 6 of the measured run's epoch.
Batches recorded_order() {
  const std::vector<std::uint32_t> order(test::kGlueOrder.begin(), test::kGlueOrder.begin() + 120);
  return loaded_batches(order, {.batch_size = 6});
}

std::vector<BatchShape> collated_lengths(const CollatorOptions& options) {
  return collated(recorded_order(), test::kTrainLengths, options);
}

TEST(Collator, ClassifiersBatchesArePaddedAsTransformersPadsThem) {
  expect_same(collated_lengths({.labels = Labels::kEachSample}), test::kPadded);
  expect_same(collated_lengths({.pad_to_multiple_of = 64, .labels = Labels::kEachSample}), test::kPaddedTo64);
  expect_same(collated_lengths({.fixed_columns = 520, .pad_to_multiple_of = 16, .labels = Labels::kEachSample}),
              test::kFixed);
}

TEST(Collator, TextsArePaddedAsTrlPadsThem) {
  expect_same(collated_lengths({}), test::kText);
  expect_same(collated_lengths({.pad_to_multiple_of = 64}), test::kTextTo64);
}

TEST(Collator, PaddingFreeBatchesAreTheRowsOfTrl) {
  expect_same(collated_lengths({.padding_free = true}), test::kPaddingFree);
  expect_same(collated_lengths({.pad_to_multiple_of = 64, .padding_free = true}), test::kPaddingFreeTo64);
}

TEST(Collator, PackedRowsAreTheRowsOfTrl) {
  const PackedRows rows = packed(test::kTrainLengths, 512, PackingStrategy::kBfd);
  const std::vector<std::int32_t> lengths = row_lengths(rows);
  const Batches batches = loaded_batches(evaluation_order(lengths, {}), {.batch_size = 4});
  expect_same(collated(batches, rows, {.padding_free = true}), test::kPackedBatches);
}

TEST(Collator, APackedRowThatIsPaddedIsOneSequence) {
  const PackedRows rows = packed(std::vector<std::int32_t>{3, 1, 2}, 4, PackingStrategy::kBfd);
  const auto batches = collated(loaded_batches(std::vector<std::uint32_t>{0, 1}, {.batch_size = 2}), rows, {});
  ASSERT_EQ(batches.size(), 1U);
  EXPECT_EQ(
      batches[0],
      (BatchShape{
          .rows = 2, .columns = 4, .tokens = 6, .valid_labels = 6, .sequences = 2, .longest = 4, .padded = true}));
}

TEST(Collator, EqualLengthsNeedNoPaddingAndAFixedLengthCuts) {
  const Batches batches = loaded_batches(std::vector<std::uint32_t>{0, 1}, {.batch_size = 2});
  EXPECT_FALSE(collated(batches, std::vector<std::int32_t>{64, 64}, {})[0].padded);
  const BatchShape cut = collated(batches, std::vector<std::int32_t>{80, 90}, {.fixed_columns = 64})[0];
  EXPECT_EQ(cut.columns, 64);
  EXPECT_EQ(cut.tokens, 128);
  EXPECT_FALSE(cut.padded);
}

TEST(Collator, WhatCannotBePaddedIsABugOfTheCaller) {
  const Batches batches = loaded_batches(std::vector<std::uint32_t>{0}, {});
  const std::vector<std::int32_t> lengths{8};
  EXPECT_THROW((void)collated(batches, lengths, {.pad_to_multiple_of = 0}), Error);
  EXPECT_THROW((void)collated(batches, lengths, {.fixed_columns = 8, .padding_free = true}), Error);
}

}  // namespace
}  // namespace memcalc
