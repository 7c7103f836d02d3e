// Steps that the loss scaler skips (--skipped-steps): what they leave out, in both loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>

#include "memcalc/memcalc.h"
#include "support/error_text.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

using ::testing::Contains;
using ::testing::HasSubstr;

ResolvedRun resolve_tiny(const RunOptions& options) {
  return resolve(registry().model("bert-base", {.layers = 1}), options);
}

Report report_of(const RunOptions& options) {
  return estimate(registry().model("bert-base", {.layers = 1}), resolve_tiny(options).run,
                  registry().device("h100-sxm"));
}

struct Skipping {
  Loop loop;
  Optimizer optimizer;
  std::int64_t skipped;
  bool states_in_forward;    // of any of the three steps
  bool states_in_optimizer;  // of any of them
};

void PrintTo(const Skipping& each, std::ostream* out) {
  *out << name_of(each.loop) << " " << name_of(each.optimizer) << " " << each.skipped;
}

class SkippedSteps : public ::testing::TestWithParam<Skipping> {};

// The peak of a phase holds the states (two floats a weight) if any of its three passes ran with them.
TEST_P(SkippedSteps, HaveNoStates) {
  const auto& [loop, optimizer, skipped, states_in_forward, states_in_optimizer] = GetParam();
  RunOptions options{.batch_size = 2, .sequence_length = 64, .precision = Precision::kAmpFp16, .loop = loop};
  options.optimizer = optimizer;
  const Report all = report_of(options);
  options.skipped_steps = skipped;
  const Report report = report_of(options);
  const Bytes states = 2 * 4 * report.parameters_total;
  const auto missing = [&](Phase phase) {
    const auto index = static_cast<std::size_t>(phase);
    return all.memory.phase_peaks[index] - report.memory.phase_peaks[index];
  };
  // The rest is rounding to 512 bytes and other holes to fill.
  const double slack = 0.05 * static_cast<double>(states);
  EXPECT_NEAR(missing(Phase::kForward), states_in_forward ? 0 : states, slack);
  EXPECT_EQ(missing(Phase::kOptimizer) > states / 2, !states_in_optimizer);
}

INSTANTIATE_TEST_SUITE_P(Table, SkippedSteps,
                         ::testing::Values(Skipping{Loop::kBare, Optimizer::kAdamWForeach, 1, true, true},
                                           Skipping{Loop::kBare, Optimizer::kAdamWForeach, 2, false, true},
                                           Skipping{Loop::kBare, Optimizer::kAdamWForeach, 3, false, false},
                                           Skipping{Loop::kBare, Optimizer::kAdamWForeach, 9, false, false},
                                           Skipping{Loop::kBare, Optimizer::kAdamWFused, 3, true, true},
                                           Skipping{Loop::kTrainer, Optimizer::kAdamWForeach, 2, false, true},
                                           Skipping{Loop::kTrainer, Optimizer::kAdamWForeach, 3, false, false},
                                           Skipping{Loop::kTrainer, Optimizer::kAdamWFused, 3, true, true}));

TEST(SkippedStepsOption, IsSaidAndRefused) {
  const RunOptions fp16{.precision = Precision::kAmpFp16, .loop = Loop::kBare};
  EXPECT_THAT(resolve_tiny(fp16).assumptions, Contains(HasSubstr("--skipped-steps")));
  EXPECT_EQ(error_rule([] { (void)resolve_tiny({.skipped_steps = 1}); }), "skipped-steps-of-a-scaler");
  EXPECT_THAT(error_text([] { (void)resolve_tiny({.precision = Precision::kAmpFp16, .skipped_steps = -1}); }),
              HasSubstr("0 to 65536"));
}

}  // namespace
}  // namespace memcalc
