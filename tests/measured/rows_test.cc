// memcalc's answers against measured runs, row by row: parameters, peaks, memory in use on the card, FLOPs. The
// floors are what is reached today, so that accuracy can only improve; the limits are those that were promised.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/alloc/replay.h"
#include "memcalc/memcalc.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/train/step.h"
#include "support/measured_report.h"
#include "support/measured_row.h"

namespace memcalc::measured {
namespace {

struct Floors {
  const char* file;
  std::size_t rows;             // that memcalc models
  std::size_t exact_allocated;  // peak_allocated right to the byte
  std::size_t exact_reserved;   // the same of peak_reserved
  std::size_t phase_peaks;      // forward, backward and optimizer peaks of the last step that were recorded …
  std::size_t exact_phase_peaks;
  std::size_t flops;  // rows that carry the counts of torch.utils.flop_counter
};

// PrintTo: what GoogleTest shows instead of bytes.
void PrintTo(const Floors& floors, std::ostream* out) { *out << floors.file; }

constexpr Floors kFiles[] = {
    {"single_gpu.jsonl", 76, 76, 74, 228, 228, 54},         {"trainer.jsonl", 14, 13, 14, 0, 0, 0},
    {"rows_h100.jsonl", 91, 88, 90, 153, 149, 0},           {"rows_h200.jsonl", 26, 26, 23, 63, 63, 0},
    {"rows_experts_h200.jsonl", 7, 7, 7, 15, 15, 0},        {"rows_saving_h200.jsonl", 7, 7, 7, 21, 21, 0},
    {"rows_families_h200.jsonl", 185, 182, 178, 93, 89, 0}, {"rows_families_h100.jsonl", 244, 233, 228, 0, 0, 0},
};

constexpr double kMaxAllocatedError = 0.001;
constexpr double kMaxReservedError = 0.01;
// Where the driver put the segments decides which of two free blocks of one size is taken: with other placements the
// bytes are those measured (Hunyuan in six of 60, where 753 MB more are reserved, ModernBERT in 36, GPT-2 in nine, a
// narrow Kimi-Linear in float32 in six: tests/measured/inexact.json). MiniMax with LoRA has 16 MiB more reserved: the
// bytes asked for at the peak are those measured (histories of 2026-11-28), why blocks were cut otherwise is not known.
// A small ERNIE 4.5 MoE takes 2 MiB more, of 78: its requests are those of its history, event for event.
constexpr std::string_view kPlacedElsewhere[] = {"hunyuan_v1_dense-amp-ckpt",   "enc-10-modernbert-base-seqcls-bf16",
                                                 "gpt2-b8-s1024-amp-fp16-ckpt", "drawn-2127-7-minimax",
                                                 "stream-ernie4_5_moe",         "drawn-4031-2-kimi_linear-narrow"};
constexpr double kMaxReservedErrorThere = 0.065;
constexpr double kMaxAllocatedErrorThere = 0.0015;
constexpr double kMaxPhaseErrorThere = 0.0035;
// Why this run reserved a twelfth more than its requests explain is not known (2026-11-28, without a history).
constexpr std::string_view kUnexplained = "drawn-2911-3-deberta-v2-h26";
constexpr double kMaxReservedErrorUnexplained = 0.09;
bool is_placed_elsewhere(std::string_view id) {
  return std::find(std::begin(kPlacedElsewhere), std::end(kPlacedElsewhere), id) != std::end(kPlacedElsewhere);
}
constexpr double kMaxMedianDeviceError = 0.01;
constexpr double kMaxPhaseError = 0.002;

// What was promised of all rows together.
consteval bool at_least(std::size_t Floors::*exact, std::size_t percent) {
  std::size_t rows = 0;
  std::size_t sum = 0;
  for (const Floors& file : kFiles) {
    rows += file.rows;
    sum += file.*exact;
  }
  return 100 * sum >= percent * rows;
}
static_assert(at_least(&Floors::exact_allocated, 95));
static_assert(at_least(&Floors::exact_reserved, 90));

struct Row {
  std::string text;
  JsonDocument json;
  MeasuredRow of;

  [[nodiscard]] Bytes measured(std::string_view key) const { return json.root().required_int(key); }
};

std::vector<Row> rows_of(const std::string& file) {
  std::vector<Row> rows;
  for_each_row(file, [&](const JsonObject& row, const std::string& text) {
    if (!is_modelled(row)) return;
    const MeasuredRow of = measured_row(row);
    if (!of.run.trains() || of.run.compiles()) return;
    if (file == "single_gpu.jsonl" && of.run.task == Task::kImageClassification) return;  // vision_rows_test's
    rows.push_back({text, JsonDocument::parse(text, file), of});
  });
  return rows;
}

// By phase: forward, backward, optimizer.
using PhasePeaks = std::array<Bytes, 3>;
constexpr std::array<const char*, 3> kPhaseNames = {"forward", "backward", "optimizer"};

// "phases": [[step, "forward", allocated before, peak, allocated after, reserved after], …]: the peaks of the last
// step. Of several micro-batches the highest; clipping counts with the optimizer, as in a trace.
std::optional<PhasePeaks> measured_peaks(const std::string& row) {
  std::size_t at = row.find("\"phases\": [");
  if (at == std::string::npos) return std::nullopt;
  PhasePeaks peaks{};
  const std::size_t end = row.find("]]", at);
  for (at = row.find("[2, \"", at); at < end; at = row.find("[2, \"", at + 1)) {
    const std::size_t name = at + 5;
    const std::size_t before = row.find("\", ", name) + 3;
    const std::size_t peak = row.find(", ", before) + 2;
    const std::string phase = row.substr(name, row.find('"', name) - name);
    const std::size_t index = phase == "forward" ? 0 : phase == "backward" ? 1 : 2;
    peaks[index] = std::max<Bytes>(peaks[index], std::strtoll(row.c_str() + peak, nullptr, 10));
  }
  return peaks;
}

PhasePeaks predicted_peaks(const MeasuredRow& of) {
  const SymbolicRun run = run_symbolically(of.spec, of.run, *of.device);
  const ReplayResult replayed = replay(run.trace, {.placement = &*of.device->placement,
                                                   .expandable_segments = of.run.expandable_segments,
                                                   .record_timeline = true});
  PhasePeaks peaks{};
  Bytes allocated = 0;
  for (std::size_t i = 0; i < run.trace.events.size(); ++i) {
    const Event& event = run.trace.events[i];
    const Bytes before = allocated;
    allocated = replayed.timeline[i].allocated;
    if (event.step != 2) continue;
    const std::size_t index = event.phase == Phase::kForward     ? 0
                              : event.phase == Phase::kBackward  ? 1
                              : event.phase == Phase::kOptimizer ? 2
                                                                 : kPhaseNames.size();
    if (index < peaks.size()) peaks[index] = std::max({peaks[index], before, allocated});
  }
  if (peaks[2] == 0) peaks[2] = allocated;  // an optimizer that works in place asks for nothing
  return peaks;
}

class Rows : public ::testing::TestWithParam<Floors> {
 protected:
  const std::vector<Row> rows_ = rows_of(GetParam().file);
};

TEST_P(Rows, PeaksParametersAndMemoryInUse) {
  const Floors& floors = GetParam();
  ASSERT_EQ(rows_.size(), floors.rows);
  std::size_t exact_allocated = 0;
  std::size_t exact_reserved = 0;
  std::vector<double> device_errors;
  std::string not_exact;
  for (const Row& row : rows_) {
    SCOPED_TRACE(row.of.id);
    const Report report = estimate(row.of.spec, row.of.run, *row.of.device);
    EXPECT_EQ(report.parameters_total, row.measured("params"));
    EXPECT_EQ(sum_of_categories(report), report.memory.peak_allocated);

    const Bytes allocated = row.measured("peak_allocated");
    const Bytes reserved = row.measured("peak_reserved");
    exact_allocated += report.memory.peak_allocated == allocated ? 1U : 0U;
    exact_reserved += report.memory.peak_reserved == reserved ? 1U : 0U;
    EXPECT_LE(error_of(report.memory.peak_allocated, allocated),
              is_placed_elsewhere(row.of.id) ? kMaxAllocatedErrorThere : kMaxAllocatedError);
    EXPECT_LE(error_of(report.memory.peak_reserved, reserved), row.of.id == kUnexplained ? kMaxReservedErrorUnexplained
                                                               : is_placed_elsewhere(row.of.id) ? kMaxReservedErrorThere
                                                                                                : kMaxReservedError);
    if (report.memory.peak_allocated != allocated || report.memory.peak_reserved != reserved) {
      not_exact += "\n  " + row.of.id + ": allocated " + std::to_string(report.memory.peak_allocated - allocated) +
                   ", reserved " + std::to_string(report.memory.peak_reserved - reserved);
    }
    ASSERT_TRUE(report.device_used_bytes.has_value());
    if (!row.json.root().has("nvml_after_train")) continue;  // several processes were on the card
    const Bytes in_use = row.measured("nvml_after_train") - row.measured("nvml_before_context");
    device_errors.push_back(error_of(*report.device_used_bytes, in_use));
  }
  SCOPED_TRACE(std::to_string(exact_allocated) + " and " + std::to_string(exact_reserved) + " of " +
               std::to_string(rows_.size()) + " are exact; off by so many bytes:" + not_exact);
  EXPECT_GE(exact_allocated, floors.exact_allocated);
  EXPECT_GE(exact_reserved, floors.exact_reserved);
  if (device_errors.empty()) return;
  const auto median = device_errors.begin() + static_cast<std::ptrdiff_t>(device_errors.size() / 2);
  std::nth_element(device_errors.begin(), median, device_errors.end());
  EXPECT_LE(*median, kMaxMedianDeviceError);
  RecordProperty("exact_allocated", std::to_string(exact_allocated));
  RecordProperty("exact_reserved", std::to_string(exact_reserved));
  RecordProperty("device_median", std::to_string(*median));
}

TEST_P(Rows, PhasePeaksOfTheLastStep) {
  const Floors& floors = GetParam();
  std::size_t recorded = 0;
  std::size_t exact = 0;
  std::string not_exact;
  for (const Row& row : rows_) {
    const std::optional<PhasePeaks> measured = measured_peaks(row.text);
    if (!measured) continue;
    const PhasePeaks predicted = predicted_peaks(row.of);
    for (std::size_t i = 0; i < measured->size(); ++i) {
      ++recorded;
      if (predicted[i] == (*measured)[i]) {
        ++exact;
        continue;
      }
      not_exact += "\n  " + row.of.id + ": " + kPhaseNames[i] + " " + std::to_string(predicted[i] - (*measured)[i]);
      EXPECT_LE(error_of(predicted[i], (*measured)[i]),
                is_placed_elsewhere(row.of.id) ? kMaxPhaseErrorThere : kMaxPhaseError)
          << row.of.id << " " << kPhaseNames[i];
    }
  }
  EXPECT_EQ(recorded, floors.phase_peaks);
  EXPECT_GE(exact, floors.exact_phase_peaks) << "off by so many bytes:" << not_exact;
  RecordProperty("exact_phase_peaks", std::to_string(exact) + " of " + std::to_string(recorded));
}

// torch.utils.flop_counter counted one micro-batch; what checkpointing computes again counts as backward there.
TEST_P(Rows, ContractionFlops) {
  std::size_t counted = 0;
  for (const Row& row : rows_) {
    const std::optional<double> forward = row.json.root().optional_double("flops_forward");
    if (!forward) continue;
    ++counted;
    SCOPED_TRACE(row.of.id);
    const Report report = estimate(row.of.spec, row.of.run, *row.of.device);
    const FlopRow& contraction = report.flops[static_cast<std::size_t>(OperatorClass::kContraction)];
    const auto batches = static_cast<double>(row.of.run.accumulation_steps());
    EXPECT_EQ(contraction.forward / batches, *forward);
    EXPECT_EQ((contraction.backward + contraction.recomputation) / batches,
              row.json.root().required_double("flops_backward"));
  }
  EXPECT_EQ(counted, GetParam().flops);
}

INSTANTIATE_TEST_SUITE_P(All, Rows, ::testing::ValuesIn(kFiles), [](const ::testing::TestParamInfo<Floors>& info) {
  const std::string_view file = info.param.file;
  return std::string(file.substr(0, file.find('.')));
});

}  // namespace
}  // namespace memcalc::measured
