// train/parallel/megatron_buffers: how Megatron's buffers are laid out and what a rank holds of them.
#include "memcalc/train/parallel/megatron_buffers.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <vector>

namespace memcalc {
namespace {

constexpr std::int64_t kOneBucket = std::numeric_limits<std::int64_t>::max();

TEST(MegatronBuffersTest, ParametersLieInReverseOrderWithoutPadding) {
  const BufferLayout layout = lay_out_buffer(std::vector<std::int64_t>{100, 30, 7}, 4, false, kOneBucket);
  EXPECT_EQ(layout.elements, 137);
  ASSERT_EQ(layout.buckets.size(), 1U);
  EXPECT_EQ(layout.parameters[2].begin, 0);
  EXPECT_EQ(layout.parameters[1].begin, 7);
  EXPECT_EQ(layout.parameters[0].begin, 37);
}

TEST(MegatronBuffersTest, TheDistributedOptimizerAlignsStartsAndBucketEnds) {
  // Starts at multiples of 64: 0, 64 (after 7), 128 (after 94); the end, 228, up to a multiple of lcm(3, 128) = 384.
  const BufferLayout layout = lay_out_buffer(std::vector<std::int64_t>{100, 30, 7}, 3, true, kOneBucket);
  EXPECT_EQ(layout.parameters[2].begin, 0);
  EXPECT_EQ(layout.parameters[1].begin, 64);
  EXPECT_EQ(layout.parameters[0].begin, 128);
  EXPECT_EQ(layout.elements, 384);
  // Pieces of 128: rank 0 holds 7 and 30 elements, rank 1 the 100.
  EXPECT_EQ(elements_of_rank(layout, layout.parameters[1], 3, 0), 30);
  EXPECT_EQ(elements_of_rank(layout, layout.parameters[0], 3, 0), 0);
  EXPECT_EQ(elements_of_rank(layout, layout.parameters[0], 3, 1), 100);
}

TEST(MegatronBuffersTest, ABucketEndsWithTheParameterThatFillsIt) {
  const BufferLayout layout = lay_out_buffer(std::vector<std::int64_t>{100, 300, 7, 260}, 2, true, 256);
  // 260 fills the first bucket (up to 384); 7 and 300 the second: 384, 448 to 748, up to 768; 100 the last.
  ASSERT_EQ(layout.buckets.size(), 3U);
  EXPECT_EQ(layout.buckets[0].end, 384);
  EXPECT_EQ(layout.buckets[1].end, 768);
  EXPECT_EQ(layout.elements, 896);
}

TEST(MegatronBuffersTest, TheRanksTogetherHoldEveryElementOnce) {
  const std::vector<std::int64_t> elements{50304 * 8, 8, 8, 640, 5000, 7, 123456, 1};
  const std::int64_t total = std::accumulate(elements.begin(), elements.end(), std::int64_t{0});
  for (const std::int64_t group : {1, 2, 3, 4, 8, 24, 384}) {
    for (const std::int64_t bucket : {std::int64_t{1}, std::int64_t{4096}, kOneBucket}) {
      const BufferLayout layout = lay_out_buffer(elements, group, true, bucket);
      EXPECT_EQ(layout.elements % group, 0);
      std::int64_t held = 0;
      for (std::int64_t rank = 0; rank < group; ++rank) {
        for (const BufferRange& parameter : layout.parameters) {
          held += elements_of_rank(layout, parameter, group, rank);
        }
      }
      EXPECT_EQ(held, total) << group << " ranks, buckets of " << bucket;
    }
  }
}

}  // namespace
}  // namespace memcalc
