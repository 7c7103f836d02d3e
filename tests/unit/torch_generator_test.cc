// base/torch_generator.h against what torch drew (unit/recorded_batches.py).
#include "memcalc/base/torch_generator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

#include "memcalc/base/error.h"
#include "unit/recorded_batches.h"

namespace memcalc {
namespace {

TEST(TorchGenerator, PermutationsAreThoseOfTorch) {
  for (const auto& recorded : test::kPermutations) {
    SCOPED_TRACE(testing::Message() << "n " << recorded.n << ", seed " << recorded.seed);
    const auto order = TorchGenerator(recorded.seed).randperm(recorded.n);
    ASSERT_EQ(static_cast<std::int64_t>(order.size()), recorded.n);
    for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 4); ++i) EXPECT_EQ(order[i], recorded.first[i]);
    EXPECT_EQ(test::hash_of(order), recorded.hash);
  }
}

TEST(TorchGenerator, WordsAreThoseOfTorchAndAPermutationGoesOnBehindThem) {
  TorchGenerator generator(42);
  for (const std::uint64_t word : test::kWords) EXPECT_EQ(generator.random64() & 0x7fffffffffffffffU, word);
  const auto order = generator.randperm(5);
  EXPECT_TRUE(std::equal(order.begin(), order.end(), std::begin(test::kPermutationAfterWords),
                         std::end(test::kPermutationAfterWords)));
}

TEST(TorchGenerator, APermutationThatTorchDrawsInAnotherWayIsRefused) {
  EXPECT_THROW((void)TorchGenerator(0).randperm(214'748'364), Error);
  EXPECT_THROW((void)TorchGenerator(0).randperm(-1), Error);
}

}  // namespace
}  // namespace memcalc
