// Runs that no rule of memcalc has seen: drawn at random over the models of specs/models and over options
// (harness/blind_cases.py), predicted first and measured then. What is asserted is what came out; cuDNN's workspaces at
// batches and image sizes that were not recorded, and the driver's placement beside other processes, are what is left.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/spec/json_reader.h"
#include "support/measured_case.h"
#include "support/measured_report.h"
#include "support/paths.h"

namespace memcalc::measured {
namespace {

constexpr const char* kFile = "rows_blind_h200.jsonl";

struct Group {
  const char* name;
  std::size_t rows, exact_allocated, exact_reserved;
  double max_allocated_error, max_reserved_error;
  std::size_t seen = 0, allocated = 0, reserved = 0;
};

TEST(BlindRows, AreWithinWhatWasReached) {
  Group text{"text", 246, 224, 227, 0.002, 0.02};
  Group images{"images and speech", 180, 136, 135, 0.01, 0.17};  // the workspaces move segments of 392 MiB
  std::ifstream lines(test::measured_dir() / kFile);
  for (std::string line; std::getline(lines, line);) {
    const JsonDocument json = JsonDocument::parse(line, kFile);
    const JsonObject case_json = json.root().required_object("case");
    const bool trainer = json.root().required_string("loop") == "trainer";
    const MeasuredCase of = measured_case(case_json, trainer ? Loop::kTrainer : Loop::kBare, "NVIDIA H200");
    SCOPED_TRACE(of.id);
    const Report report = estimate(of.spec, of.run, *of.device);
    if (!case_json.has("quant")) {  // there torch counts packed bytes
      EXPECT_EQ(report.parameters_total, json.root().required_int("params"));
    }
    EXPECT_EQ(sum_of_categories(report), report.memory.peak_allocated);
    const Task task = of.run.task;
    const bool convolves = task == Task::kImageClassification || task == Task::kContrastive || task == Task::kSpeech;
    Group& group = convolves ? images : text;
    const Bytes allocated = json.root().required_int("peak_allocated");
    const Bytes reserved = json.root().required_int("peak_reserved");
    ++group.seen;
    group.allocated += report.memory.peak_allocated == allocated ? 1U : 0U;
    group.reserved += report.memory.peak_reserved == reserved ? 1U : 0U;
    EXPECT_LE(error_of(report.memory.peak_allocated, allocated), group.max_allocated_error);
    EXPECT_LE(error_of(report.memory.peak_reserved, reserved), group.max_reserved_error);
  }
  for (const Group& group : {text, images}) {
    EXPECT_EQ(group.seen, group.rows) << group.name;
    EXPECT_GE(group.allocated, group.exact_allocated) << group.name;
    EXPECT_GE(group.reserved, group.exact_reserved) << group.name;
  }
}

}  // namespace
}  // namespace memcalc::measured
