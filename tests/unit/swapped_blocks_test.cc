// train/swapped_blocks: which blocks wait on the host, and what float8 and they take off the card.
#include "memcalc/train/swapped_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "support/paths.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::vector<std::string> paths_of(const std::string& list, int blocks) {
  std::vector<std::string> paths;
  for (int i = 0; i < blocks; ++i) paths.push_back(list + "." + std::to_string(i));
  return paths;
}

std::vector<std::string> joined(std::vector<std::string> paths, const std::vector<std::string>& more) {
  paths.insert(paths.end(), more.begin(), more.end());
  return paths;
}

std::vector<std::int64_t> swapped_of(const std::vector<std::string>& paths, std::int64_t asked) {
  std::vector<std::int64_t> swapped;
  for (const BlockList& each : block_lists(paths, asked)) swapped.push_back(each.swapped);
  return swapped;
}

TEST(SwappedBlocks, OfOneListAsManyAsAreAsked) {
  EXPECT_EQ(swapped_of(paths_of("blocks", 30), 29), std::vector<std::int64_t>{29});
  // Z-Image's refiners are none.
  EXPECT_EQ(swapped_of(joined(paths_of("noise_refiner", 2), paths_of("layers", 30)), 10),
            std::vector<std::int64_t>{10});
}

TEST(SwappedBlocks, OfFluxABlockOfTheFirstListIsTwoOfTheSecond) {
  const auto paths = joined(paths_of("transformer_blocks", 19), paths_of("single_transformer_blocks", 38));
  EXPECT_EQ(swapped_of(paths, 18), (std::vector<std::int64_t>{9, 18}));  // sd-scripts: 18 // 2, (18 - 9) * 2
  EXPECT_EQ(swapped_of(paths, 35), (std::vector<std::int64_t>{17, 36}));
  EXPECT_THROW((void)block_lists(paths, 36), Error);  // 18 of 19 would go
}

TEST(SwappedBlocks, OfFlux2AsTheListsShares) {
  const auto paths = joined(paths_of("transformer_blocks", 8), paths_of("single_transformer_blocks", 48));
  // round(16 / (1 + 6 / 2)) = 4, round(4 * 6) = 24
  EXPECT_EQ(swapped_of(paths, 16), (std::vector<std::int64_t>{4, 24}));
  // 7 and 42: one of the first list too many, which becomes two of the second
  EXPECT_EQ(swapped_of(paths, 28), (std::vector<std::int64_t>{6, 44}));
}

Report report_of(const std::string& words) { return estimate(test::question_of(test::words_in(words))); }

Bytes weights_at_peak(const Report& report) {
  return report.memory.categories_at_peak[static_cast<std::size_t>(Category::kWeights)];
}

constexpr const char* kSd3 = "--model sd3-medium --lora 4 --image 256 --checkpointing full ";

TEST(SwappedBlocks, SwappedWeightsAreNotOnTheCard) {
  const Report all = report_of(kSd3), swapped = report_of(std::string(kSd3) + "--blocks-to-swap 10");
  // A block of SD3 medium, width 1536: norm1 and norm1_context 2 * 6 * 1536^2, attention 8 * 1536^2, two feed-forward
  // layers 2 * 8 * 1536^2, in 2 bytes. Ten blocks, but the last one has no second feed-forward layer, no to_add_out,
  // and two parts of modulation in its norm, whose weight is of another shape and stays.
  constexpr Bytes kSquare = Bytes{2} * 1536 * 1536;
  constexpr Bytes kBlock = (12 + 8 + 16) * kSquare, kLast = (6 + 7 + 8) * kSquare;
  EXPECT_EQ(weights_at_peak(all) - weights_at_peak(swapped), 9 * kBlock + kLast);
  EXPECT_THAT(swapped.not_modelled, Contains(HasSubstr("cross PCIe")));
}

TEST(SwappedBlocks, Float8WeightsTakeAByte) {
  const Report all = report_of(kSd3), cast = report_of(std::string(kSd3) + "--quantize fp8-cast"),
               scaled = report_of(std::string(kSd3) + "--quantize fp8-scaled");
  EXPECT_LT(weights_at_peak(cast), weights_at_peak(all) * 55 / 100);
  EXPECT_GT(weights_at_peak(cast), weights_at_peak(all) * 45 / 100);
  // A scale of 2 bytes for 64 numbers; modulations stay in 16 bits.
  EXPECT_GT(weights_at_peak(scaled), weights_at_peak(cast));
  EXPECT_LT(weights_at_peak(scaled), weights_at_peak(all) * 75 / 100);
}

// Without checkpoints autograd keeps each product's 16-bit copy of its weight, and nothing is saved.
TEST(SwappedBlocks, WithoutCheckpointsCopiesOfFloat8Weights) {
  const std::string words = "--model sd3-medium --lora 4 --image 256 ";
  EXPECT_GT(report_of(words + "--quantize fp8-cast").memory.peak_allocated, report_of(words).memory.peak_allocated);
}

}  // namespace
}  // namespace memcalc
