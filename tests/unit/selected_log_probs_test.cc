// The log-probability of one class a row, as TRL's kernel makes it.
#include "memcalc/symbolic/ops/selected_log_probs.h"

#include <gtest/gtest.h>

#include <vector>

#include "memcalc/symbolic/ops/view.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

class SelectedLogProbsTest : public testing::Test {
 protected:
  SelectedLogProbsTest() { bench_.warm_up(); }

  test::TapeBench bench_;
};

constexpr Bytes kOfEach = 2 * 7 * 4;

TEST_F(SelectedLogProbsTest, FourNumbersARowAndNoCopyOfTheLogits) {
  const Tensor logits = slice(bench_.input({2, 8, 100}), 1, 0, 7);
  const Tensor index = bench_.input({2, 7}, DType::kInt64, false);
  bench_.start();
  const Tensor log_probs = selected_log_probs(logits, index);
  EXPECT_EQ(bench_.requests(), (std::vector<Bytes>{kOfEach, kOfEach, kOfEach, kOfEach, -kOfEach}))
      << "log-probability, entropy, log_z, expected logit; the entropy is dropped";
  EXPECT_EQ(log_probs.shape(), index.shape());
}

TEST_F(SelectedLogProbsTest, TheGradientOfTheLogitsIsRowMajor) {
  const Tensor logits = slice(bench_.input({2, 8, 100}), 1, 0, 7);
  const Tensor log_probs = selected_log_probs(logits, bench_.input({2, 7}, DType::kInt64, false));
  bench_.start();
  bench_.backward(log_probs);
  EXPECT_EQ(bench_.requests(),
            (std::vector<Bytes>{2 * 7 * 100 * 4, -kOfEach, -kOfEach, 2 * 8 * 100 * 4, -2 * 7 * 100 * 4}))
      << "its own, what it has kept, and that of all logits with zeros";
}

// The requests of trl 1.13's DPOTrainer (j13041-20), of two sequences instead of four.
TEST_F(SelectedLogProbsTest, SequenceBySequence) {
  const Tensor logits = slice(bench_.input({2, 8, 100}), 1, 0, 7);
  const Tensor index = bench_.input({2, 7}, DType::kInt64, false);
  const Tensor mask = bench_.input({2, 7}, DType::kBool, false);
  constexpr Bytes kSequence = 7 * 100 * 4, kRow = 7 * 4;
  bench_.start();
  Tensor log_probs = selected_log_probs_by_sequence(logits, index);
  const std::vector<Bytes> of_one = {kRow, kRow, 7, -7, -kRow, kSequence, kRow, -kSequence, -kRow};
  std::vector<Bytes> expected = {kOfEach};
  for (int i = 0; i < 2; ++i) expected.insert(expected.end(), of_one.begin(), of_one.end());
  expected.insert(expected.end(), {kOfEach, kOfEach, -kOfEach, -kOfEach});
  EXPECT_EQ(bench_.requests(), expected) << "gather; amax, abs, is infinite, exp, sum; the stack and the difference";
  log_probs = zeros_at(log_probs, mask);
  bench_.start();
  bench_.backward(log_probs);
  EXPECT_EQ(bench_.requests(), (std::vector<Bytes>{kOfEach,    kOfEach,  kOfEach,   kOfEach,   -kOfEach,   -kOfEach,
                                                   -kOfEach,   kOfEach,  kSequence, kSequence, kSequence,  -kSequence,
                                                   -kSequence, -kRow,    kSequence, kSequence, kSequence,  -kSequence,
                                                   -kSequence, -kOfEach, -kRow,     5600,      -kSequence, -kSequence,
                                                   5600,       -kOfEach, -5600,     6400,      -5600}))
      << "CopySlices; of each sequence difference, exponential, product; stack, the zeros of gather, of the slice";
}

TEST_F(SelectedLogProbsTest, EntropyOf128RowsAtATime) {
  const Tensor logits = slice(bench_.input({2, 101, 10}, DType::kFloat32, false), 1, 0, 100);
  bench_.start();
  const Tensor entropy = entropy_from_logits(logits);
  EXPECT_EQ(bench_.requests(),
            (std::vector<Bytes>{8000, 5120,  5120, 5120,  -5120, 512,  -5120, 512,  -512, 2880,  -5120, 2880,
                                2880, -2880, 288,  -2880, 288,   -288, 800,   -288, -512, -2880, -8000}));
  EXPECT_EQ(entropy.shape(), (Shape{2, 100}));
}

}  // namespace
}  // namespace memcalc
