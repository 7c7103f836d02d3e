// Runs that no rule of memcalc has seen: drawn at random over the models of specs/models and over options
// (harness/blind_cases.py), predicted first and measured then. What is asserted is what came out; cuDNN's workspaces at
// batches and image sizes that were not recorded, and the driver's placement beside other processes, are what is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/json_reader.h"
#include "support/measured_report.h"
#include "support/measured_row.h"
#include "support/row_group.h"

namespace memcalc::measured {
namespace {

constexpr const char* kFile = "rows_blind_h200.jsonl";

TEST(BlindRows, AreWithinWhatWasReached) {
  RowGroup text{"text", 246, 224, 227, 0.002, 0.02};
  RowGroup images{"images and speech", 180, 136, 135, 0.01, 0.17};  // the workspaces move segments of 392 MiB
  for_each_row(kFile, [&](const JsonObject& row, const std::string& /*text*/) {
    const MeasuredRow of = measured_row(row);
    SCOPED_TRACE(of.id);
    const Report report = estimate(of.spec, of.run, *of.device);
    if (of.run.fine_tuning.quantization == Quantization::kNone) {  // there torch counts packed bytes
      EXPECT_EQ(report.parameters_total, row.required_int("params"));
    }
    EXPECT_EQ(sum_of_categories(report), report.memory.peak_allocated);
    const Task task = of.run.task;
    const bool convolves = task == Task::kImageClassification || task == Task::kContrastive || task == Task::kSpeech;
    RowGroup& group = convolves ? images : text;
    const Bytes allocated = row.required_int("peak_allocated");
    const Bytes reserved = row.required_int("peak_reserved");
    group.add(error_of(report.memory.peak_allocated, allocated), error_of(report.memory.peak_reserved, reserved));
  });
  text.expect_what_was_reached();
  images.expect_what_was_reached();
}

}  // namespace
}  // namespace memcalc::measured
