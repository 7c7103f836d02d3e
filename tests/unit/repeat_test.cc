// train/repeat: one executed step and its copies. A variable of a loop outlives the step, a state stays for good.
#include "memcalc/train/repeat.h"

#include <gtest/gtest.h>

#include <string>

#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::TapeBench;

constexpr Operator kMake{"make"};

class RepeatedStep : public ::testing::Test {
 protected:
  Tensor make(Bytes bytes) { return bench_.tape.empty({bytes}, DType::kUInt8, kMake); }

  // Three steps, of which one is executed.
  template <typename Step>
  std::string steps(Tensor& carried_variable, Step step) {
    CarriedVariables carried;
    const auto variables = [&](auto visit) { visit(carried_variable); };
    carried.place(bench_.tape, variables);
    const std::size_t first_event = bench_.tape.memory.trace.events.size();
    const std::size_t first_block = bench_.tape.memory.trace.blocks.size();
    bench_.start();
    step();
    carried.collect(variables);
    repeat_step(bench_.tape, first_event, first_block, carried, 2);
    std::string events = bench_.events();
    bench_.tape.memory.stop();
    return events;
  }

  TapeBench bench_;
};

TEST_F(RepeatedStep, CarriedVariablesDieWhereTheNextStepAssignsThem) {
  Tensor gradient;
  EXPECT_EQ(steps(gradient,
                  [&] {
                    const Tensor temporary = make(1);
                    gradient = make(2);
                  }),
            "+1 make; +2 make; -1; +1 make; +2 make; -2; -1; +1 make; +2 make; -2; -1");
}

TEST_F(RepeatedStep, WhatIsNotFreedStays) {
  Tensor gradient, state;
  EXPECT_EQ(steps(gradient,
                  [&] {
                    state = make(8);
                    gradient = make(2);
                  }),
            "+8 make; +2 make; +2 make; -2; +2 make; -2");
}

// A parameter that the loss does not depend on never gets a gradient.
TEST_F(RepeatedStep, AVariableThatIsNeverAssignedLeavesNothing) {
  Tensor unused;
  EXPECT_EQ(steps(unused, [&] { const Tensor temporary = make(1); }), "+1 make; -1; +1 make; -1; +1 make; -1");
  EXPECT_EQ(steps(unused, [&] { unused.reset(); }), "");
}

// More than half of the card: cuDNN's plan finds no memory once a state lies in the segment that it left.
class LargeWorkspace : public RepeatedStep {
 protected:
  static constexpr Bytes kLarge = 50'000'000'000;
  void convolve() { bench_.tape.memory.scratch(kLarge, kMake, Category::kWorkspaces); }
};

TEST_F(LargeWorkspace, IsPassedOverWhereStatesWereMade) {
  Tensor unused, state;
  EXPECT_EQ(steps(unused,
                  [&] {
                    convolve();
                    const Tensor temporary = make(1);
                    state = bench_.tape.empty({8}, DType::kUInt8, kMake, Category::kOptimizerStates);
                  }),
            "+50000000000 make; -50000000000; +1 make; +8 make; -1; +1 make; -1; +1 make; -1");
}

TEST_F(LargeWorkspace, FindsItsSegmentAgainWithoutStates) {
  Tensor unused;
  EXPECT_EQ(steps(unused, [&] { convolve(); }),
            "+50000000000 make; -50000000000; +50000000000 make; -50000000000; +50000000000 make; -50000000000");
}

}  // namespace
}  // namespace memcalc
