// train/data/texts.h: batches of sentence-transformers 6.0.1, as a run of its trainer on a CPU padded them (2026-11-28:
// eight batches of three columns, in the order of torch's generator of the seed 42).
#include "memcalc/train/data/texts.h"

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

RunSpec run_of(Loop loop, const std::string& text, RunOptions options = {}) {
  const auto path = std::filesystem::path(testing::TempDir()) / ("texts_test_" + std::to_string(text.size()) + ".txt");
  std::ofstream(path) << text;
  options.loop = loop;
  options.batch_size = 2;
  options.lengths = path.string();
  return resolve(test::model_of("bert-base"), options).run;
}

BatchShape first_of(const RunSpec& run) {
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < run.training().lengths->samples->tokens.size(); ++i) order.push_back(i);
  return collated_texts(loaded_batches(order, {.batch_size = run.batch_size}), run).front();
}

TEST(Texts, EachColumnIsCutAndPaddedByItself) {
  const RunSpec run =
      run_of(Loop::kSentenceTransformer, "12/57/80\n30/9/64\n", {.sequence_length = 60, .hard_negatives = 2});
  EXPECT_EQ(run.sequence_length, 60);
  const BatchShape shape = first_of(run);
  ASSERT_EQ(shape.texts.size(), 4U) << "an anchor, a positive, two negatives";
  EXPECT_EQ(shape.texts[0], (std::vector<std::int32_t>{12, 30}));
  EXPECT_EQ(shape.texts[1], (std::vector<std::int32_t>{57, 9}));
  EXPECT_EQ(shape.texts[2], (std::vector<std::int32_t>{60, 60})) << "cut";
  EXPECT_EQ(shape.texts[3], shape.texts[2]);
  EXPECT_TRUE(width_of(shape.texts[0], 0, 2).padded);
  EXPECT_FALSE(width_of(shape.texts[2], 0, 2).padded);
  EXPECT_EQ(width_of(shape.texts[1], 1, 1).longest, 9) << "of a mini-batch";
}

TEST(Texts, OneLengthIsThatOfEveryText) {
  const BatchShape shape = first_of(run_of(Loop::kSentenceTransformer, "12\n30\n"));
  ASSERT_EQ(shape.texts.size(), 2U);
  EXPECT_EQ(shape.texts[0], shape.texts[1]);
}

TEST(Texts, OfACrossEncoderAPairIsCutAsOne) {
  const BatchShape shape = first_of(run_of(Loop::kCrossEncoder, "12/57\n30/9\n", {.sequence_length = 60}));
  ASSERT_EQ(shape.texts.size(), 1U);
  EXPECT_EQ(shape.texts[0], (std::vector<std::int32_t>{60, 39}));
  EXPECT_EQ(shape.columns, 60);
}

TEST(Texts, OfAnEncoderDecoderSourcesAndLabelsArePaddedByThemselves) {
  const auto path = std::filesystem::path(testing::TempDir()) / "texts_test_sources.txt";
  std::ofstream(path) << "12/57\n30/9\n";
  RunOptions options{.task = Task::kSeq2Seq, .batch_size = 2, .loop = Loop::kTrainer};
  options.sequence_length = 20;
  options.target_sequence_length = 50;
  options.pad_to_multiple_of = 8;
  options.lengths = path.string();
  const RunSpec run = resolve(test::model_of("t5-small"), options).run;
  EXPECT_EQ(run.sequence_length, 20);
  EXPECT_EQ(run.target_sequence_length, 50);
  const std::vector<std::uint32_t> order = {0, 1};
  const BatchShape shape = collated_sources(loaded_batches(order, {.batch_size = 2}), run).front();
  EXPECT_EQ(shape.columns, 24);
  EXPECT_EQ(shape.answers.other_columns, 56);
  EXPECT_EQ(shape.valid_labels, 50 + 9);
  EXPECT_TRUE(shape.padded);
}

}  // namespace
}  // namespace memcalc
