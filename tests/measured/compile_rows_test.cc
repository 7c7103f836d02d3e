// memcalc's answers against runs that were measured side by side on one card, so that their peaks count and their
// memory in use does not: fine-tuning, saved activations, offloaded optimizers, torch.compile. The compiler's decisions
// are modelled, not copied: those peaks are near and not equal, and the limits are what docs/compile.md states.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <fstream>
#include <ostream>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/spec/json_reader.h"
#include "support/measured_case.h"
#include "support/paths.h"

namespace memcalc::measured {
namespace {

struct Peaks {
  const char* file;
  bool compiled;  // the rows of torch.compile, or all others
  std::size_t rows;
  std::size_t exact_allocated;
  double max_allocated_error;
  double max_reserved_error;
};

// PrintTo: what GoogleTest shows instead of bytes.
void PrintTo(const Peaks& peaks, std::ostream* out) { *out << peaks.file; }

constexpr Peaks kFiles[] = {
    {"single_gpu.jsonl", true, 2, 0, 0.01, 0.01},
    {"rows_finetuning_h200.jsonl", false, 18, 16, 0.0005, 0.001},
};

class SideBySide : public ::testing::TestWithParam<Peaks> {};

TEST_P(SideBySide, PeaksAndParameters) {
  const Peaks& floors = GetParam();
  std::size_t rows = 0;
  std::size_t exact = 0;
  std::ifstream lines(test::measured_dir() / floors.file);
  for (std::string line; std::getline(lines, line);) {
    const JsonDocument json = JsonDocument::parse(line, floors.file);
    const JsonObject row = json.root();
    const JsonObject case_json = row.required_object("case");
    if (row.has("error") || case_json.has("compile") != floors.compiled) continue;
    ++rows;
    const bool trainer = row.optional_string("loop").value_or("bare") == "trainer";
    const std::string gpu = row.optional_string("gpu").value_or(kUsualGpu);
    const MeasuredCase of = is_vision_case(case_json)
                                ? vision_case(case_json)
                                : measured_case(case_json, trainer ? Loop::kTrainer : Loop::kBare, gpu);
    SCOPED_TRACE(of.id);
    const Report report = estimate(of.spec, of.run, measured_device(gpu));
    const auto error = [&](Bytes predicted, const char* key) {
      return std::abs(static_cast<double>(predicted) / row.required_double(key) - 1);
    };
    EXPECT_LE(error(report.memory.peak_allocated, "peak_allocated"), floors.max_allocated_error);
    EXPECT_LE(error(report.memory.peak_reserved, "peak_reserved"), floors.max_reserved_error);
    EXPECT_EQ(report.parameters_total, row.required_int("params"));
    exact += report.memory.peak_allocated == row.required_int("peak_allocated") ? 1U : 0U;
  }
  EXPECT_EQ(rows, floors.rows);
  EXPECT_GE(exact, floors.exact_allocated);
}

INSTANTIATE_TEST_SUITE_P(Measured, SideBySide, ::testing::ValuesIn(kFiles));

}  // namespace
}  // namespace memcalc::measured
