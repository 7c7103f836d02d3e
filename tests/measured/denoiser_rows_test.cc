// memcalc's answers against measured LoRA runs of diffusion's denoising networks, alone and with the rest of their
// pipelines on the card, packed and with blocks that wait on the host. The floors are what is reached today.
#include <gtest/gtest.h>

#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>

#include "memcalc/memcalc.h"
#include "memcalc/spec/json_reader.h"
#include "support/measured_row.h"

namespace memcalc::measured {
namespace {

struct DenoiserFloors {
  const char* file;
  std::size_t rows;  // that memcalc models
  std::size_t exact_allocated;
  std::size_t exact_reserved;
  double most_off_allocated, most_off_reserved;  // relative
};

void PrintTo(const DenoiserFloors& floors, std::ostream* out) { *out << floors.file; }

constexpr DenoiserFloors kFiles[] = {
    {"rows_denoisers_h100.jsonl", 7, 7, 7, 0.0002, 0.0005},
    // sd3-medium-pipeline at 768 pixels is 1.3 % low, as the script had an embedding twice; at 1024 pixels a workspace
    // of 1.9 GiB found its block taken in the third step alone.
    {"rows_denoisers_h200.jsonl", 61, 27, 28, 0.0135, 0.06},
};

class DenoiserRows : public ::testing::TestWithParam<DenoiserFloors> {};

TEST_P(DenoiserRows, Peaks) {
  std::size_t rows = 0, exact_allocated = 0, exact_reserved = 0;
  for_each_row(GetParam().file, [&](const JsonObject& row, const std::string& /*text*/) {
    if (!is_modelled(row)) return;
    const MeasuredRow of = measured_row(row);
    SCOPED_TRACE(of.id);
    const Report report = estimate(of.spec, of.run, *of.device);
    const double allocated = row.required_double("peak_allocated"), reserved = row.required_double("peak_reserved");
    ++rows;
    EXPECT_NEAR(static_cast<double>(report.memory.peak_allocated), allocated,
                GetParam().most_off_allocated * allocated);
    EXPECT_NEAR(static_cast<double>(report.memory.peak_reserved), reserved, GetParam().most_off_reserved * reserved);
    exact_allocated += report.memory.peak_allocated == row.required_int("peak_allocated") ? 1U : 0U;
    exact_reserved += report.memory.peak_reserved == row.required_int("peak_reserved") ? 1U : 0U;
  });
  EXPECT_GE(rows, GetParam().rows);
  EXPECT_GE(exact_allocated, GetParam().exact_allocated);
  EXPECT_GE(exact_reserved, GetParam().exact_reserved);
  RecordProperty("exact_allocated", std::to_string(exact_allocated));
  RecordProperty("exact_reserved", std::to_string(exact_reserved));
}

INSTANTIATE_TEST_SUITE_P(All, DenoiserRows, ::testing::ValuesIn(kFiles),
                         [](const ::testing::TestParamInfo<DenoiserFloors>& info) {
                           const std::string_view file = info.param.file;
                           return std::string(file.substr(0, file.find('.')));
                         });

}  // namespace
}  // namespace memcalc::measured
