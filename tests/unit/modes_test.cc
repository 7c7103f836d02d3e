#include "memcalc/symbolic/modes.h"

#include <gtest/gtest.h>

#include "memcalc/symbolic/autocast.h"
#include "memcalc/symbolic/capture.h"
#include "memcalc/symbolic/ops/linear.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

class ModesTest : public testing::Test {
 protected:
  test::TapeBench bench_;
  Tape& tape_ = bench_.tape;
  Modes& modes_ = bench_.tape.modes;
};

TEST_F(ModesTest, GradientsAreOffAndOnUntilTheirScopesEnd) {
  EXPECT_TRUE(modes_.grad_enabled);
  {
    const NoGrad no_grad(modes_);
    EXPECT_FALSE(modes_.grad_enabled);
    {
      const EnableGrad enable_grad(modes_);
      EXPECT_TRUE(modes_.grad_enabled);
    }
    EXPECT_FALSE(modes_.grad_enabled);
  }
  EXPECT_TRUE(modes_.grad_enabled);
}

TEST_F(ModesTest, AScopedModeHasItsFormerValueAgainAlsoAfterAnException) {
  modes_.sequence_split = {.ranks = 4};
  try {
    const Scoped split(modes_.sequence_split, SequenceSplit{.ranks = 2, .loss_parallel = true});
    EXPECT_EQ(modes_.sequence_split->ranks, 2);
    throw StopRecomputation{};
  } catch (const StopRecomputation&) {
  }
  ASSERT_TRUE(modes_.sequence_split);
  EXPECT_EQ(modes_.sequence_split->ranks, 4);
  EXPECT_FALSE(modes_.sequence_split->loss_parallel);
}

TEST_F(ModesTest, TheEndOfAnAutocastRegionEmptiesTheCacheOfWeights) {
  const Tensor weight = tape_.parameter({16, 16}, DType::kFloat32);
  {
    const Autocasting autocasting(modes_.autocast, DType::kFloat16);
    EXPECT_EQ(modes_.autocast.find(*weight.impl()), nullptr);
    const Tensor product = linear(bench_.input({16, 16}, DType::kFloat16, false), weight, {});
    ASSERT_NE(modes_.autocast.find(*weight.impl()), nullptr);
    EXPECT_EQ(modes_.autocast.find(*weight.impl())->dtype(), DType::kFloat16);
  }
  EXPECT_FALSE(modes_.autocast.is_on());
  EXPECT_EQ(modes_.autocast.find(*weight.impl()), nullptr);
}

TEST_F(ModesTest, WhatRunsWithoutAutocastInsideOfARegionLeavesItsCache) {
  const Tensor weight = tape_.parameter({16, 16}, DType::kFloat32);
  const Autocasting autocasting(modes_.autocast, DType::kBFloat16);
  modes_.autocast.add(*weight.impl(), tape_.empty({16, 16}, DType::kBFloat16, Operator{"cast"}));
  {
    const WithoutAutocast without_autocast(modes_.autocast);
    EXPECT_FALSE(modes_.autocast.is_on());
  }
  EXPECT_EQ(modes_.autocast.dtype, DType::kBFloat16);
  EXPECT_NE(modes_.autocast.find(*weight.impl()), nullptr);
}

TEST_F(ModesTest, ACaptureNeitherUsesNorLosesWhatWasCastBefore) {
  const Tensor weight = tape_.parameter({16, 16}, DType::kFloat32);
  const Autocasting autocasting(modes_.autocast, DType::kBFloat16);
  modes_.autocast.add(*weight.impl(), tape_.empty({16, 16}, DType::kBFloat16, Operator{"cast"}));
  bench_.start();
  GraphCapture capture;
  {
    const Capturing capturing(tape_, capture);
    EXPECT_EQ(modes_.capture, &capture);
    EXPECT_EQ(modes_.autocast.find(*weight.impl()), nullptr);
    const Tensor made = tape_.empty({16}, DType::kFloat32, Operator{"made"});
  }
  EXPECT_EQ(modes_.capture, nullptr);
  EXPECT_NE(modes_.autocast.find(*weight.impl()), nullptr);
  EXPECT_EQ(bench_.events(), "") << "nothing that was captured is an event";
}

}  // namespace
}  // namespace memcalc
