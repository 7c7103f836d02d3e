// report/step_curve: the memory of one step in few points, none of which hides the peak.
#include "memcalc/report/step_curve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "memcalc/memcalc.h"
#include "support/registry.h"

namespace memcalc {
namespace {

using test::registry;

Report report_of(const RunOptions& options) {
  const ModelSpec model = registry().model("gpt2");
  return estimate(model, resolve(model, options), registry().device("h100-sxm"));
}

TEST(StepCurve, FewPointsKeepThePeak) {
  const Report report = report_of({.batch_size = 4});
  for (const std::size_t most : {std::size_t{1}, std::size_t{7}, std::size_t{600}}) {
    const StepCurve curve = step_curve(report, most);
    ASSERT_EQ(curve.points.size(), most);
    const CurvePoint& peak = curve.points[curve.peak];
    EXPECT_EQ(peak.allocated, report.memory.peak_allocated);
    EXPECT_EQ(peak.operator_chain, report.peak_operator);
    for (const CurvePoint& point : curve.points) {
      EXPECT_EQ(std::accumulate(point.bytes.begin(), point.bytes.end(), Bytes{0}), point.allocated);
      EXPECT_LE(point.allocated, point.reserved);
      EXPECT_LE(point.reserved, report.memory.peak_reserved);
    }
  }
}

TEST(StepCurve, PhasesCoverAllPoints) {
  const StepCurve curve = step_curve(report_of({.batch_size = 2}), 100);
  ASSERT_FALSE(curve.phases.empty());
  EXPECT_EQ(curve.phases.front().phase, Phase::kForward);
  EXPECT_EQ(curve.phases.front().first, 0U);
  EXPECT_EQ(curve.phases.back().last, 99U);
}

TEST(StepCurve, MorePointsThanEventsAreNotMade) {
  const StepCurve curve = step_curve(report_of({.batch_size = 1}), 1'000'000);
  EXPECT_EQ(curve.points.size(), curve.events);
}

TEST(StepCurve, Json) {
  const std::string json = render_json(step_curve(report_of({.batch_size = 1}), 3));
  EXPECT_NE(json.find("\"phases\":[{\"name\":\"forward\",\"first\":0"), std::string::npos) << json;
  EXPECT_NE(json.find("\"categories\":{\"weights\":["), std::string::npos) << json;
  EXPECT_EQ(json.find("kv_cache"), std::string::npos) << json;  // none of it in this run
}

}  // namespace
}  // namespace memcalc
