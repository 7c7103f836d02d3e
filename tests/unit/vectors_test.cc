// Lengths, inner products and sums of exponentials: what they ask for, read off ATen's sources.
#include "memcalc/symbolic/ops/vectors.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/tape_bench.h"

namespace memcalc {
namespace {

class VectorsTest : public testing::Test {
 protected:
  VectorsTest() { bench_.warm_up(); }

  test::TapeBench bench_;
};

TEST_F(VectorsTest, ANormalisedRowIsItsNumbersByItsLength) {
  const Tensor x = bench_.input({6, 64});
  bench_.start();
  const Tensor unit = normalized_rows(x);
  EXPECT_EQ(bench_.requests(), (std::vector<Bytes>{6 * 4, 6 * 4, 6 * 64 * 4})) << "norm, clamp_min, quotient";
  EXPECT_EQ(unit.shape(), x.shape());
}

TEST_F(VectorsTest, AnInnerProductKeepsTheOtherVectorForItsGradient) {
  const Tensor a = bench_.input({100});
  Tensor b = bench_.input({100}, DType::kFloat32, false);
  const Tensor product = dot(a, b);
  EXPECT_EQ(product.shape().rank, 0);
  b.reset();
  bench_.start();
  bench_.backward(product);
  EXPECT_EQ(bench_.requests(), (std::vector<Bytes>{100 * 4})) << "gradient * other";
}

TEST_F(VectorsTest, ASumOfExponentialsHoldsOneCopy) {  // torch 2.11's host code on a runtime that computes nothing
  const Tensor scores = bench_.input({8, 200});
  bench_.start();
  const Tensor log_z = log_sum_exp(scores, 0b10, false);
  constexpr Bytes kAll = 8 * 200 * 4;
  EXPECT_EQ(bench_.requests(), (std::vector<Bytes>{8 * 4, 8 * 4, 8, -8, -8 * 4, kAll, 8 * 4, -kAll, -8 * 4}))
      << "largest, whether one is infinite, exponentials of the differences, result";
  EXPECT_EQ(log_z.shape(), (Shape{8}));
  EXPECT_EQ(log_sum_exp(scores, 0b10, true).shape(), (Shape{8, 1}));
}

}  // namespace
}  // namespace memcalc
