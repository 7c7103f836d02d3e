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

}  // namespace
}  // namespace memcalc
