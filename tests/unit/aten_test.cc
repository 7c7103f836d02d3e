#include "memcalc/symbolic/aten.h"

#include <gtest/gtest.h>

#include <array>

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/train/compile/rules.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

class AtenTest : public testing::Test {
 protected:
  [[nodiscard]] Tensor of(DType dtype) { return bench_.input({16}, dtype, false); }

  test::TapeBench bench_;
  Autocast& autocast_ = bench_.tape.modes.autocast;
};

TEST_F(AtenTest, WithoutARegionOperandsStayAsTheyAre) {
  const Tensor x = of(DType::kFloat32);
  EXPECT_EQ(autocast(aten::kMm, x).impl(), x.impl());
  EXPECT_EQ(autocast_result(aten::kSum, of(DType::kBFloat16)), DType::kBFloat16);
}

TEST_F(AtenTest, TheListOfAnOperatorSaysWhatAutocastHandsToIt) {
  const Autocasting region(autocast_, DType::kBFloat16);
  const Tensor wide = of(DType::kFloat32), half = of(DType::kBFloat16), other_half = of(DType::kFloat16);
  EXPECT_EQ(autocast(aten::kMm, wide).dtype(), DType::kBFloat16);
  EXPECT_EQ(autocast(aten::kMm, other_half).dtype(), DType::kBFloat16);
  EXPECT_EQ(autocast(aten::kExp, half).dtype(), DType::kFloat32);
  EXPECT_EQ(autocast(aten::kExp, wide).impl(), wide.impl());
  EXPECT_EQ(autocast(aten::kMul, half).impl(), half.impl());
  EXPECT_EQ(autocast(aten::kSum, half).impl(), half.impl()) << "the kernel widens what it reads";
  EXPECT_EQ(autocast_result(aten::kSum, half), DType::kFloat32);
  EXPECT_EQ(autocast_result(aten::kMul, half), DType::kBFloat16);
}

TEST_F(AtenTest, OperandsOfTheListPromoteMeetInTheWidestType) {
  const Autocasting region(autocast_, DType::kBFloat16);
  std::array<Tensor, 2> halves{of(DType::kBFloat16), of(DType::kBFloat16)};
  autocast_promote(aten::kAddcmul, halves);
  EXPECT_EQ(halves[0].dtype(), DType::kBFloat16);
  std::array<Tensor, 2> mixed{of(DType::kBFloat16), of(DType::kFloat32)};
  autocast_promote(aten::kMul, mixed);
  EXPECT_EQ(mixed[0].dtype(), DType::kBFloat16) << "mul is on no list";
  autocast_promote(aten::kAddcmul, mixed);
  EXPECT_EQ(mixed[0].dtype(), DType::kFloat32);
}

TEST_F(AtenTest, EveryCompileRuleIsWritten) {
  for (std::size_t i = 0; i < kCompileRuleCount; ++i) {
    const compile::OperatorRule& rule = compile::rule_of(static_cast<CompileRule>(i));
    EXPECT_NE(rule.forward, nullptr) << i;
    EXPECT_NE(rule.backward, nullptr) << i;
  }
}

}  // namespace
}  // namespace memcalc
