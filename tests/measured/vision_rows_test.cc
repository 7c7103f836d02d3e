// memcalc's answers against measured runs of image models and of models of images and text: parameters, FLOPs, peaks.
// The floors are what is reached today; docs/validation.md lists the rows that are not exact, and why.
#include <gtest/gtest.h>

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>

#include "memcalc/memcalc.h"
#include "memcalc/spec/image_text_spec.h"
#include "memcalc/spec/json_reader.h"
#include "support/measured_row.h"

namespace memcalc::measured {
namespace {

struct VisionFloors {
  const char* file;
  std::size_t rows;  // that memcalc models
  std::size_t exact_allocated;
  std::size_t exact_reserved;
  std::size_t flops;  // rows that carry the counts of torch.utils.flop_counter
};

// PrintTo: what GoogleTest shows instead of bytes.
void PrintTo(const VisionFloors& floors, std::ostream* out) { *out << floors.file; }

constexpr VisionFloors kFiles[] = {
    {"single_gpu.jsonl", 10, 10, 10, 10},
    {"rows_vision_h100.jsonl", 53, 45, 48, 0},
    {"rows_images_h100.jsonl", 50, 41, 40, 0},
};

constexpr double kMaxAllocatedError = 0.003;

class VisionRows : public ::testing::TestWithParam<VisionFloors> {};

TEST_P(VisionRows, ParametersFlopsAndPeaks) {
  std::size_t rows = 0;
  std::size_t exact_allocated = 0;
  std::size_t exact_reserved = 0;
  std::size_t counted = 0;
  for_each_row(GetParam().file, [&](const JsonObject& row, const std::string& /*text*/) {
    if (!is_modelled(row)) return;
    const MeasuredRow of = measured_row(row);
    if (of.run.compiles() || !of.run.trains()) return;
    if (of.run.task != Task::kImageClassification && !shows_images(of.spec)) return;
    SCOPED_TRACE(of.id);
    const Report report = estimate(of.spec, of.run, *of.device);
    ++rows;
    EXPECT_NEAR(static_cast<double>(report.memory.peak_allocated), row.required_double("peak_allocated"),
                kMaxAllocatedError * row.required_double("peak_allocated"));
    EXPECT_EQ(report.parameters_total, row.required_int("params"));
    exact_allocated += report.memory.peak_allocated == row.required_int("peak_allocated") ? 1U : 0U;
    exact_reserved += report.memory.peak_reserved == row.required_int("peak_reserved") ? 1U : 0U;
    if (!row.has("flops_forward")) return;
    ++counted;
    const FlopRow& contraction = report.flops[static_cast<std::size_t>(OperatorClass::kContraction)];
    const auto batches = static_cast<double>(of.run.accumulation_steps());
    EXPECT_EQ(contraction.forward / batches, row.required_double("flops_forward"));
    EXPECT_EQ((contraction.backward + contraction.recomputation) / batches, row.required_double("flops_backward"));
  });
  EXPECT_GE(rows, GetParam().rows);
  EXPECT_GE(exact_allocated, GetParam().exact_allocated);
  EXPECT_GE(exact_reserved, GetParam().exact_reserved);
  EXPECT_GE(counted, GetParam().flops);
  RecordProperty("exact_allocated", std::to_string(exact_allocated));
  RecordProperty("exact_reserved", std::to_string(exact_reserved));
}

INSTANTIATE_TEST_SUITE_P(All, VisionRows, ::testing::ValuesIn(kFiles),
                         [](const ::testing::TestParamInfo<VisionFloors>& info) {
                           const std::string_view file = info.param.file;
                           return std::string(file.substr(0, file.find('.')));
                         });

}  // namespace
}  // namespace memcalc::measured
