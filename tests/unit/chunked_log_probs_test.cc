// trl 1.16, kernels/chunked_logprob.py: what the function asks for, read off its source.
#include "memcalc/symbolic/ops/chunked_log_probs.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "support/tape_bench.h"

namespace memcalc {
namespace {

constexpr DType kBf16 = DType::kBFloat16;
constexpr Bytes kTile = 3 * 32768 * 2;  // mm_buf of three tokens

class ChunkedLogProbsTest : public testing::Test {
 protected:
  ChunkedLogProbsTest() { bench_.warm_up(); }

  test::TapeBench bench_;
};

TEST_F(ChunkedLogProbsTest, TheLogitsOfAllWordsAreNeverHeld) {
  const Tensor hidden = bench_.input({3, 64}, kBf16), weight = bench_.input({100000, 64}, kBf16);
  const Tensor targets = bench_.input({3}, DType::kInt64, false);
  bench_.start();
  const ChunkedLogProbs made = chunked_log_probs(hidden, weight, {}, targets, {});
  Bytes held = 0, most = 0;
  for (const Bytes request : bench_.requests()) most = std::max(most, held += request);
  EXPECT_EQ(most, kTile + 7 * 3 * 4 + 2 * 3 * 4) << "a tile, seven numbers a token, log(sum_exp) and log_z";
  EXPECT_EQ(held, 2 * 3 * 4) << "log_probs, and log_z for backward";
  EXPECT_FALSE(made.entropy.defined());
}

TEST_F(ChunkedLogProbsTest, BackwardSumsInFloat32AndReturnsTheTypesOfItsInputs) {
  const Tensor hidden = bench_.input({3, 64}, kBf16), weight = bench_.input({100000, 64}, kBf16);
  const Tensor targets = bench_.input({3}, DType::kInt64, false);
  const ChunkedLogProbs made = chunked_log_probs(hidden, weight, {}, targets, {.entropy = true, .is_top1 = true});
  EXPECT_EQ(made.is_top1.dtype(), DType::kBool);
  bench_.start();
  bench_.backward(made.log_probs);
  const std::vector<Bytes> requests = bench_.requests();
  const std::vector<Bytes> sums{3 * 64 * 4, 100000 * 64 * 4, kTile, 3 * 64 * 2, 100000 * 64 * 2};
  ASSERT_GE(requests.size(), sums.size());
  EXPECT_EQ(std::vector<Bytes>(requests.begin(), requests.begin() + 5), sums);
}

TEST_F(ChunkedLogProbsTest, WorkDoesNotGrowWithTheTokens) {
  const auto requests = [&](std::int64_t tokens) {
    const Tensor hidden = bench_.input({tokens, 64}, kBf16), weight = bench_.input({1000, 64}, kBf16);
    const Tensor targets = bench_.input({tokens}, DType::kInt64, false);
    bench_.start();
    const ChunkedLogProbs made = chunked_log_probs(hidden, weight, {}, targets, {});
    bench_.backward(made.log_probs);
    return bench_.requests().size();
  };
  EXPECT_EQ(requests(8 * 4096), requests(1'000'000 * std::int64_t{4096}));
}

TEST_F(ChunkedLogProbsTest, AFrozenHeadGetsNoGradient) {
  const Tensor hidden = bench_.input({3, 64}, kBf16), weight = bench_.input({1000, 64}, kBf16, false);
  const Tensor targets = bench_.input({3}, DType::kInt64, false);
  const ChunkedLogProbs made = chunked_log_probs(hidden, weight, {}, targets, {});
  bench_.start();
  bench_.backward(made.log_probs);
  for (const Bytes request : bench_.requests()) EXPECT_NE(request, 1000 * 64 * 4);
}

TEST_F(ChunkedLogProbsTest, Float32WeightsAreCastTileByTileUnderAutocast) {
  const Autocasting region(bench_.tape.modes.autocast, kBf16);
  const Tensor hidden = bench_.input({3, 64}), weight = bench_.input({40000, 64});
  const Tensor targets = bench_.input({3}, DType::kInt64, false);
  bench_.start();
  (void)chunked_log_probs(hidden, weight, {}, targets, {});
  const std::vector<Bytes> requests = bench_.requests();
  EXPECT_EQ(std::count(requests.begin(), requests.end(), 32768 * 64 * 2), 1);
  EXPECT_EQ(std::count(requests.begin(), requests.end(), (40000 - 32768) * 64 * 2), 1);
  EXPECT_EQ(std::count(requests.begin(), requests.end(), 3 * 64 * 2), 1) << "the hidden states";
}

}  // namespace
}  // namespace memcalc
