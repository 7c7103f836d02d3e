// memcalc's answers against measured calls of model(**batch) and model.generate(**batch), row by row. The floors are
// what is reached today, so that accuracy can only improve.
#include <gtest/gtest.h>

#include <cstddef>
#include <ostream>
#include <string>

#include "memcalc/memcalc.h"
#include "memcalc/spec/json_reader.h"
#include "support/measured_report.h"
#include "support/measured_row.h"

namespace memcalc::measured {
namespace {

struct Floors {
  const char* file;
  std::size_t rows;             // of inference
  std::size_t exact_allocated;  // of the second call, right to the byte
  std::size_t exact_reserved;
  double max_reserved_error;
};

// PrintTo: what GoogleTest shows instead of bytes.
void PrintTo(const Floors& floors, std::ostream* out) { *out << floors.file; }

constexpr double kMaxError = 0.01;
// GPT-2 XL with its weights on the host: 12 MiB of 302; with two of 60 other placements none.
constexpr double kMaxReservedError = 0.04;

constexpr Floors kFiles[] = {
    {"single_gpu.jsonl", 4, 4, 4, kMaxReservedError},
    {"rows_inference_h200.jsonl", 28, 27, 27, kMaxReservedError},
    {"rows_native_formats_h200.jsonl", 3, 3, 1, 0.06},  // MXFP4: how far its loader's threads run ahead is not modelled
};

class InferenceRows : public ::testing::TestWithParam<Floors> {};

TEST_P(InferenceRows, PeaksOfTheSecondCall) {
  const Floors& floors = GetParam();
  std::size_t rows = 0;
  std::size_t exact_allocated = 0;
  std::size_t exact_reserved = 0;
  std::string not_exact;
  for_each_row(floors.file, [&](const JsonObject& row, const std::string& /*text*/) {
    if (!is_modelled(row)) return;
    const MeasuredRow of = measured_row(row);
    if (of.run.trains()) return;
    SCOPED_TRACE(of.id);
    ++rows;
    const Report report = estimate(of.spec, of.run, *of.device);
    EXPECT_EQ(report.parameters_total, row.required_int("params"));
    EXPECT_EQ(sum_of_categories(report), report.memory.peak_allocated);
    const Bytes allocated = row.required_int("peak_allocated");
    const Bytes reserved = row.required_int("peak_reserved");
    exact_allocated += report.memory.peak_allocated == allocated ? 1U : 0U;
    exact_reserved += report.memory.peak_reserved == reserved ? 1U : 0U;
    EXPECT_LE(error_of(report.memory.peak_allocated, allocated), kMaxError);
    EXPECT_LE(error_of(report.memory.peak_reserved, reserved), floors.max_reserved_error);
    if (report.memory.peak_allocated != allocated || report.memory.peak_reserved != reserved) {
      not_exact += "\n  " + of.id + ": allocated " + std::to_string(report.memory.peak_allocated - allocated) +
                   ", reserved " + std::to_string(report.memory.peak_reserved - reserved);
    }
  });
  EXPECT_EQ(rows, floors.rows);
  EXPECT_GE(exact_allocated, floors.exact_allocated) << "off by so many bytes:" << not_exact;
  EXPECT_GE(exact_reserved, floors.exact_reserved) << "off by so many bytes:" << not_exact;
}

INSTANTIATE_TEST_SUITE_P(All, InferenceRows, ::testing::ValuesIn(kFiles),
                         [](const ::testing::TestParamInfo<Floors>& info) {
                           const std::string file = info.param.file;
                           return file.substr(0, file.find('.'));
                         });

}  // namespace
}  // namespace memcalc::measured
