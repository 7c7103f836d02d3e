// Logarithms, exp(x) - 1 and the choice between two tensors: what they keep and ask for, read off ATen's derivatives.
#include "memcalc/symbolic/ops/logarithm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "memcalc/symbolic/ops/integer.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

class LogarithmTest : public testing::Test {
 protected:
  LogarithmTest() { bench_.warm_up(); }

  /// What is asked for by the derivative of `result`.
  std::vector<Bytes> of_backward(const Tensor& result) {
    bench_.start();
    bench_.backward(result);
    return bench_.requests();
  }

  test::TapeBench bench_;
};

constexpr Bytes kBytes = 100 * 4;

TEST_F(LogarithmTest, OfOneMoreThanXAddsOneAgainInBackward) {
  EXPECT_EQ(of_backward(log1p(bench_.input({100}))), (std::vector<Bytes>{kBytes, kBytes, -kBytes}))
      << "x + 1, quotient";
  EXPECT_EQ(of_backward(logarithm(bench_.input({100}))), (std::vector<Bytes>{kBytes})) << "quotient";
}

TEST_F(LogarithmTest, ExponentialLessOneKeepsItsResult) {
  const Tensor x = bench_.input({100});
  bench_.start();
  const Tensor result = expm1(x);
  EXPECT_EQ(bench_.requests(), (std::vector<Bytes>{kBytes}));
}

TEST_F(LogarithmTest, AChoiceGivesEachItsPartOfTheGradient) {
  const Tensor a = bench_.input({100}), b = bench_.input({100});
  const Tensor condition = bench_.input({100}, DType::kBool, false);
  const Tensor chosen = where(condition, a, b);
  const std::vector<Bytes> asked = of_backward(chosen);
  EXPECT_EQ(std::count(asked.begin(), asked.end(), kBytes), 2);
  EXPECT_EQ(std::count(asked.begin(), asked.end(), 4), 2) << "the zero, as a scalar on the card";
}

TEST_F(LogarithmTest, AChoiceOfTwoTypesMakesTheNarrowerOneWide) {
  const Tensor wide = bench_.input({1, 100}, DType::kFloat32, false);
  const Tensor narrow = bench_.input({8, 100}, DType::kBFloat16, false);
  const Tensor condition = bench_.input({8, 1}, DType::kBool, false);
  bench_.start();
  const Tensor chosen = where(condition, wide, narrow);
  EXPECT_EQ(chosen.dtype(), DType::kFloat32);
  EXPECT_EQ(bench_.requests(), (std::vector<Bytes>{8 * kBytes, 8 * kBytes, -8 * kBytes}));
}

}  // namespace
}  // namespace memcalc
