// memcalc's answers against measured runs of torch.compile. The compiler's decisions are modelled, not copied, so the
// peaks are near and not equal: the limit is what docs/compile.md states.
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

struct CompiledRows {
  const char* file;
  std::size_t rows;
};

// PrintTo: what GoogleTest shows instead of bytes.
void PrintTo(const CompiledRows& rows, std::ostream* out) { *out << rows.file; }

constexpr CompiledRows kFiles[] = {{"single_gpu.jsonl", 2}};
constexpr double kMaxAllocatedError = 0.03;
constexpr double kMaxReservedError = 0.05;

class Compiled : public ::testing::TestWithParam<CompiledRows> {};

TEST_P(Compiled, PeaksAndParameters) {
  std::size_t rows = 0;
  std::ifstream lines(test::measured_dir() / GetParam().file);
  for (std::string line; std::getline(lines, line);) {
    const JsonDocument json = JsonDocument::parse(line, GetParam().file);
    const JsonObject row = json.root();
    const JsonObject case_json = row.required_object("case");
    if (row.has("error") || !case_json.has("compile")) continue;
    ++rows;
    const bool trainer = row.optional_string("loop").value_or("bare") == "trainer";
    const MeasuredCase of = is_vision_case(case_json)
                                ? vision_case(case_json)
                                : measured_case(case_json, trainer ? Loop::kTrainer : Loop::kBare);
    SCOPED_TRACE(of.id);
    const Report report = estimate(of.spec, of.run, measured_device());
    const auto error = [&](Bytes predicted, const char* key) {
      return static_cast<double>(predicted) / row.required_double(key) - 1;
    };
    RecordProperty(of.id + " allocated", std::to_string(100 * error(report.memory.peak_allocated, "peak_allocated")));
    EXPECT_LE(std::abs(error(report.memory.peak_allocated, "peak_allocated")), kMaxAllocatedError);
    EXPECT_LE(std::abs(error(report.memory.peak_reserved, "peak_reserved")), kMaxReservedError);
    EXPECT_EQ(report.parameters_total, row.required_int("params"));
  }
  EXPECT_EQ(rows, GetParam().rows);
}

INSTANTIATE_TEST_SUITE_P(Measured, Compiled, ::testing::ValuesIn(kFiles));

}  // namespace
}  // namespace memcalc::measured
