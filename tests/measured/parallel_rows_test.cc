// memcalc's answers against measured runs on several GPUs, row by row. The floors are what is reached today, so that
// accuracy can only improve; the limits are those that were promised.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "memcalc/alloc/replay.h"
#include "memcalc/memcalc.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/registry.h"
#include "memcalc/train/step.h"
#include "support/measured_ranks.h"
#include "support/measured_report.h"
#include "support/measured_row.h"
#include "support/paths.h"
#include "support/row_group.h"

namespace memcalc::measured {
namespace {

struct Floors {
  const char* file;
  std::size_t rows;
  std::size_t exact_allocated;
  std::size_t exact_reserved;
};

void PrintTo(const Floors& floors, std::ostream* out) { *out << floors.file; }

constexpr Floors kFiles[] = {
    {"rows_parallel_h200.jsonl", 70, 47, 37},          {"rows_deepspeed_h200.jsonl", 86, 78, 66},
    {"rows_parallel_mesh_h200.jsonl", 30, 26, 23},     {"rows_parallel_pipelines_h200.jsonl", 97, 88, 69},
    {"rows_parallel_sequence_h200.jsonl", 14, 13, 13}, {"rows_parallel_combined_h200.jsonl", 57, 48, 27},
    {"rows_trainer_ranks_h200.jsonl", 96, 61, 68},     {"nocard_trainer_offload.jsonl", 20, 18, 20},
    {"rows_trainer_offload_h200.jsonl", 6, 6, 6},      {"rows_layouts_h200.jsonl", 20, 20, 14},
    {"rows_two_cards_h200.jsonl", 20, 16, 13},         {"rows_layouts_llama3_h200.jsonl", 20, 20, 15},
    {"rows_two_cards_more_h200.jsonl", 29, 19, 9},     {"rows_layouts_qwen25_h200.jsonl", 20, 16, 16},
    {"rows_two_cards_third_h200.jsonl", 26, 19, 17},   {"rows_layouts_llama2_13b_h200.jsonl", 20, 20, 15},
    {"rows_two_cards_fourth_h200.jsonl", 24, 20, 18},  {"rows_layouts_phi4_mini_h200.jsonl", 20, 20, 16},
    {"rows_two_cards_fifth_h200.jsonl", 24, 19, 13},   {"rows_two_cards_sixth_h200.jsonl", 18, 16, 11},
    {"rows_two_cards_seventh_h200.jsonl", 10, 7, 8}};

constexpr double kMaxAllocatedError = 0.02;
constexpr double kMedianAllocatedError = 0.005;
constexpr double kMedianReservedError = 0.03;

struct Comparison {
  double allocated = 0;  // errors
  double reserved = 0;
};

double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The row is of one rank, by default the first.
Comparison compare(const JsonObject& row) {
  const MeasuredRanks& said = measured_ranks(row);
  const std::string id = row.required_string("id");
  if (said.run.fine_tuning.quantization == Quantization::kNone) {  // else two numbers are in a byte
    EXPECT_EQ(said.parameters_total, row.required_int("params")) << id;
  }
  const RankRow& predicted = said.of(row);
  const Bytes allocated = row.required_int("peak_allocated");
  const Bytes reserved = row.required_int("peak_reserved");
  const Comparison errors{error_of(predicted.peak_allocated, allocated), error_of(predicted.peak_reserved, reserved)};
  if (errors.allocated > 0 || errors.reserved > 0) {
    std::printf("  %-40s allocated %+.4f %%  reserved %+.4f %%\n", id.c_str(),
                100 * (static_cast<double>(predicted.peak_allocated) / static_cast<double>(allocated) - 1),
                100 * (static_cast<double>(predicted.peak_reserved) / static_cast<double>(reserved) - 1));
  }
  return errors;
}

class ParallelRows : public ::testing::TestWithParam<Floors> {};

TEST_P(ParallelRows, AreAsExactAsTheyWere) {
  std::vector<double> allocated;
  std::vector<double> reserved;
  for_each_row(GetParam().file, [&](const JsonObject& row, const std::string& /*text*/) {
    if (!is_modelled(row)) return;
    const Comparison errors = compare(row);
    allocated.push_back(errors.allocated);
    reserved.push_back(errors.reserved);
  });
  EXPECT_EQ(allocated.size(), GetParam().rows);
  EXPECT_GE(static_cast<std::size_t>(std::count(allocated.begin(), allocated.end(), 0.0)), GetParam().exact_allocated);
  EXPECT_GE(static_cast<std::size_t>(std::count(reserved.begin(), reserved.end(), 0.0)), GetParam().exact_reserved);
  EXPECT_LE(*std::max_element(allocated.begin(), allocated.end()), kMaxAllocatedError);
  EXPECT_LE(median_of(allocated), kMedianAllocatedError);
  EXPECT_LE(median_of(reserved), kMedianReservedError);
}

INSTANTIATE_TEST_SUITE_P(Files, ParallelRows, ::testing::ValuesIn(kFiles), [](const auto& info) {
  const std::string file = info.param.file;
  return file.substr(0, file.find('.'));
});

// Runs drawn at random over models, meshes of 2 to 64 GPUs and options (harness/parallel_blind_cases.py), each rank
// alone on an H200 in torch's fake process group: nothing arrives late there, which FSDP1's reserved memory depends on.
// The first draws were predicted first and then looked into; what is asserted is what is reached.
TEST(BlindParallelRows, AreWithinWhatWasReached) {
  constexpr const char* kFile = "rows_parallel_blind_h200.jsonl";
  RowGroup whole{"DDP, ZeRO-1, FSDP2, CP, experts", 436, 401, 384, 0.02, 0.06};
  RowGroup split{"TP", 97, 65, 67, 0.12, 0.12};
  RowGroup staged{"pipelines", 417, 316, 229, 0.01, 0.2};
  RowGroup fsdp1{"FSDP1", 42, 36, 0, 0.03, 0.41};
  for_each_row(kFile, [&](const JsonObject& row, const std::string& /*text*/) {
    SCOPED_TRACE(row.required_string("id"));
    const Parallel& parallel = measured_ranks(row).run.parallel;
    RowGroup& group = parallel.pipeline > 1                            ? staged
                      : parallel.tensor > 1                            ? split
                      : parallel.data_parallel == DataParallel::kFsdp1 ? fsdp1
                                                                       : whole;
    const Comparison errors = compare(row);
    group.add(errors.allocated, errors.reserved);
  });
  for (const RowGroup& group : {whole, split, staged, fsdp1}) {
    group.expect_what_was_reached();
    std::printf("  %s: %zu rows, %zu, %zu exact\n", group.name, group.seen, group.allocated, group.reserved);
  }
}

// bert-large-uncased, sequence classification, fp32, AdamW, batch 4 a card, 512 tokens, nn.DataParallel on two V100 of
// 32 GB (driver 470): nvidia-smi read 311 MiB on GPU 0 with a context alone, 1,599 with the model loaded, 11,493 after
// training. Transformers of that time had eager attention only.
TEST(PublishedDataParallel, BothMemoryStepsAreWithinFivePercent) {
  constexpr double kMost = 0.05;
  const SpecRegistry registry(test::specs_dir().string());
  const ModelSpec spec = registry.model("bert-large-uncased");
  RunOptions options{.batch_size = 4, .sequence_length = 512, .precision = Precision::kFp32, .loop = Loop::kTrainer};
  options.attention = Attention::kEager;
  options.gpus = 2;
  options.parallel.data_parallel = DataParallel::kDp;
  const SymbolicRun run = run_symbolically(spec, resolve(spec, options).run, registry.device("v100-sxm2-32gb"), 0);
  const ReplayResult memory = replay(run.trace, {.record_timeline = true});
  std::size_t built = 0;
  while (run.trace.events[built].phase == Phase::kBuild) ++built;
  const Bytes loaded = memory.timeline[built - 1].reserved;
  EXPECT_LE(error_of(loaded, (1599 - 311) * kMiB), kMost);
  EXPECT_LE(error_of(memory.peak_reserved - loaded, (11493 - 1599) * kMiB), kMost);
}

}  // namespace
}  // namespace memcalc::measured
