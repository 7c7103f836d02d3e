// memcalc.h: the façade, as a caller uses it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "support/registry.h"
#include "support/typed_run.h"

namespace memcalc {
namespace {

using ::testing::StartsWith;

using test::registry;

TEST(Estimate, IsTheWholeFlow) {
  const ModelSpec model = registry().model("bert-large");
  const ResolvedRun run = resolve(model, {.batch_size = 4, .precision = Precision::kAmpFp16});
  const Report report = estimate(model, run, registry().device("h100-sxm"));
  EXPECT_EQ(report.parameters_total, 335143938);
  const auto& categories = report.memory.categories_at_peak;
  EXPECT_EQ(std::accumulate(categories.begin(), categories.end(), report.memory.slack_at_peak),
            report.memory.peak_allocated);
  EXPECT_LE(report.memory.exact_peak, report.memory.peak_allocated);
  EXPECT_LE(report.memory.peak_allocated, report.memory.peak_reserved);
  EXPECT_TRUE(report.fits());
  EXPECT_FALSE(report.peak_operator.empty());
  Bytes contributed = report.memory.slack_at_peak;
  for (const PeakContributor& each : report.contributors) contributed += each.total_bytes;
  EXPECT_EQ(contributed, report.memory.peak_allocated);
}

TEST(Estimate, WhatWasDefaultedStandsFirstAmongTheAssumptions) {
  const ModelSpec model = registry().model("gpt2");
  const ResolvedRun run = resolve(model, {});
  const Report report = estimate(model, run, registry().device("h100-sxm"));
  ASSERT_GE(report.assumptions.size(), run.assumptions.size());
  EXPECT_TRUE(std::equal(run.assumptions.begin(), run.assumptions.end(), report.assumptions.begin()));
}

TEST(Estimate, ValidatesWhatDidNotComeFromResolve) {
  const ModelSpec model = registry().model("bert-large");
  EXPECT_THROW((void)estimate(model, RunSpec{.task = Task::kSequenceClassification}, registry().device("h100-sxm")),
               Error)
      << "no sequence length";
}

TEST(Estimate, FitsOnEqualsAnEstimateForEachCard) {
  const ModelSpec model = registry().model("gpt2-medium");
  const RunSpec run = resolve(model, {.batch_size = 8, .precision = Precision::kAmpBf16}).run;
  std::vector<DeviceSpec> devices;
  for (const char* name : {"a100-sxm4-80gb", "rtx-4090", "a100-sxm4-40gb", "h100-sxm", "h200-sxm"}) {
    devices.push_back(registry().device(name));
  }
  const std::vector<FitRow> rows = fits_on(model, run, devices);
  ASSERT_EQ(rows.size(), devices.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Report report = estimate(model, run, devices[i]);
    EXPECT_EQ(rows[i].gpu, devices[i].name);
    EXPECT_EQ(rows[i].needed_bytes, report.needed());
    EXPECT_EQ(rows[i].needed_error, report.needed_error);
    EXPECT_EQ(rows[i].verdict, report.verdict);
  }
}

TEST(Estimate, BesideOtherCardsEqualsEachByItself) {
  std::vector<DeviceSpec> devices;
  for (const char* name : {"rtx-4090", "h200-sxm"}) devices.push_back(registry().device(name, Rates::kLeave));
  for (const char* line : {"--model gpt2 --bs 8 --bf16 --tokens 1e9", "--model resnet18 --bs 32 --loop bare",
                           "--model gpt2 --load device-map", "--model gpt2 --gpus 2 --parallel ddp",
                           "--model gpt2 --infer --bs 2 --quantize int8"}) {
    SCOPED_TRACE(line);
    const Question question = test::question_of(test::words_in(line));
    const auto [report, others] = estimate_beside(question, devices);
    EXPECT_EQ(render(report, Format::kJson, {}), render(estimate(question), Format::kJson, {}));
    const std::vector<FitRow> rows = fits_on(question.model, question.run.run, devices);
    ASSERT_EQ(others.size(), rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(others[i].gpu, devices[i].name);
      EXPECT_EQ(others[i].needed_bytes, rows[i].needed_bytes);
      EXPECT_EQ(others[i].needed_error, rows[i].needed_error);
      EXPECT_EQ(others[i].verdict, rows[i].verdict);
    }
  }
}

TEST(Estimate, TraceIsTheStreamBehindIt) {
  const ModelSpec model = registry().model("gpt2");
  const RunSpec run = resolve(model, {}).run;
  EXPECT_THAT(trace(model, run, registry().device("h100-sxm")), StartsWith("# phase\tdelta_bytes\t"));
}

}  // namespace
}  // namespace memcalc
