// report/throughput.h: shares of the peak that are never above 1, and numbers that cannot be.
#include "memcalc/report/throughput.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "memcalc/base/error.h"

namespace memcalc {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// 1 s on a card of 100 FLOP/s.
StepTime step(double model_flops, double masked, double recomputed = 0) {
  StepTime step;
  step.step_seconds = 1;
  step.peak_flops_per_second = 100;
  step.model_flops = model_flops;
  step.hardware_flops = model_flops + recomputed;
  step.masked_model_flops = step.masked_hardware_flops = masked;
  return step;
}

Report report_of(const StepTime& step) {
  Report report;
  report.run.batch_size = 1;
  report.run.sequence_length = 1024;
  set_time(report, step);
  return report;
}

TEST(Throughput, MfuCountsCausalAttentionInFullWhileItFits) {
  const Report report = report_of(step(80, 30));
  EXPECT_DOUBLE_EQ(report.time->mfu, 0.8);
  EXPECT_DOUBLE_EQ(report.time->hfu, 0.8);
  EXPECT_TRUE(report.assumptions.empty());
}

TEST(Throughput, MfuLeavesTheMaskedHalfOutWhereItWouldExceedOne) {
  Report report = report_of(step(120, 50));
  EXPECT_DOUBLE_EQ(report.time->mfu, 0.7);
  ASSERT_EQ(report.assumptions.size(), 1U);
  EXPECT_NE(report.assumptions.front().find("the half that is computed"), std::string::npos);
  set_time(report, step(120, 50));
  EXPECT_EQ(report.assumptions.size(), 1U);  // once
  const Report recomputed = report_of(step(90, 40, 20));
  EXPECT_DOUBLE_EQ(recomputed.time->mfu, 0.5);  // as HFU: else the two could not be compared
  EXPECT_DOUBLE_EQ(recomputed.time->hfu, 0.7);
}

std::string refusal(const Report& report, double tokens) {
  try {
    (void)training_run_of(report, tokens);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(TrainingRun, TokensThatCannotBeAreRefused) {
  const Report report = report_of(step(80, 30));
  EXPECT_EQ(refusal(report, 1e30), "--tokens: found 1e+30; accepted: 1 to 1e+18 tokens");
  for (const double tokens : {0.0, -1.0, 0.5, 1.1e18, kNan, kInfinity}) EXPECT_NE(refusal(report, tokens), "");
  for (const double tokens : {1.0, 1.5e12, 1e18}) EXPECT_EQ(refusal(report, tokens), "");
}

TEST(InputPipeline, NumbersThatCannotBeAreRefused) {
  const InputPipeline good{.sample_seconds = 0.1, .sample_bytes = 1e5, .storage_bytes_per_second = 1e9};
  Report report = report_of(step(80, 30));
  EXPECT_NO_THROW(feed(report, good));
  for (const double value : {kNan, kInfinity, -1.0, 2e18}) {
    for (double InputPipeline::*const member :
         {&InputPipeline::sample_seconds, &InputPipeline::sample_bytes, &InputPipeline::storage_bytes_per_second}) {
      InputPipeline bad = good;
      bad.*member = value;
      EXPECT_THROW(feed(report, bad), Error) << value;
    }
  }
}

}  // namespace
}  // namespace memcalc
