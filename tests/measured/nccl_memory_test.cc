// What NCCL took on an H200 against report/nccl_memory: sequences of process groups and collectives on two cards
// (nccl_memory_h200.jsonl), and all that runs on several cards had in use outside of PyTorch's allocator.
#include "memcalc/report/nccl_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/registry.h"
#include "support/measured_ranks.h"
#include "support/measured_row.h"
#include "support/paths.h"

namespace memcalc::measured {
namespace {

constexpr Bytes kTolerance = 6 * kMiB;  // the driver's own chunks

NcclMemory h200() { return *SpecRegistry(test::specs_dir().string()).device("h200-sxm").nccl; }

/// NCCL_MAX_CTAS=4
NcclMemory with_four_channels() {
  NcclMemory nccl = h200();
  nccl.channels = nccl.p2p_channels = 4;
  return nccl;
}

struct Sequence {
  const char* name;
  std::int64_t rank;
  Communication communication;
};

std::vector<Sequence> sequences() {
  const Communicator ring{.ranks = 2, .collectives = true}, alone{.ranks = 1};
  const Communicator both{.ranks = 2, .collectives = true, .sent_to = 1, .received_from = 1};
  const Communicator sends{.ranks = 2, .collectives = true, .sent_to = 1};
  const Communicator receives{.ranks = 2, .collectives = true, .received_from = 1};
  const Communicator peers{.ranks = 2, .sent_to = 1, .received_from = 1};
  return {{"collectives", 0, {{both}, true}},
          {"sends", 0, {{both}}},
          {"sends", 1, {{both}}},
          {"groups", 0, {{ring, both, ring, ring}}},
          {"gather-first", 0, {{ring}}},
          {"sends-first", 1, {{both}}},
          {"exchange-first", 0, {{peers}}},
          {"bf16", 0, {{ring}}},
          {"ones", 0, {{ring, alone, alone}}},
          {"split", 0, {{ring, sends, ring}}},
          {"split", 1, {{ring, receives, ring}}},
          {"mesh1", 0, {{ring}}},
          {"mesh12", 1, {{ring, alone}}},
          {"mesh211", 0, {{ring, alone, alone}}},
          {"alone", 0, {{alone, alone}}},
          // A group that was made before it was used takes its channels with the first collective of its own, and
          // another communicator for messages.
          {"lazy", 0, {{ring, peers}}},
          {"ctas-4", 0, {{both, ring}}}};
}

std::optional<Bytes> taken(const std::string& name, std::int64_t rank) {
  std::ifstream lines(test::measured_dir() / "nccl_memory_h200.jsonl");
  for (std::string line; std::getline(lines, line);) {
    const JsonDocument json = JsonDocument::parse(line, "nccl_memory_h200.jsonl");
    if (json.root().required_string("name") != name || json.root().required_int("rank") != rank) continue;
    const std::vector<JsonObject> steps = json.root().optional_objects("steps");
    const auto outside = [](const JsonObject& step) {
      return step.required_int("nvml") - step.required_int("reserved");
    };
    EXPECT_EQ(steps.at(1).required_string("step"), "ctx");
    return outside(steps.back()) - outside(steps.at(1));
  }
  return std::nullopt;
}

TEST(NcclMemory, IsThatOfEachSequenceOfGroupsAndCollectives) {
  for (const Sequence& each : sequences()) {
    const std::optional<Bytes> measured = taken(each.name, each.rank);
    ASSERT_TRUE(measured.has_value()) << each.name;
    const bool limited = std::string(each.name) == "ctas-4";
    const Bytes predicted = nccl_bytes(limited ? with_four_channels() : h200(), each.communication);
    EXPECT_LE(std::abs(predicted - *measured), kTolerance)
        << each.name << ": " << predicted / kMiB << " MiB for " << *measured / kMiB;
  }
}

struct Rows {
  const char* file;
  std::size_t rows;
  std::size_t near;  // within the tolerance
};

void PrintTo(const Rows& rows, std::ostream* out) { *out << rows.file; }

constexpr Rows kFilesInUse[] = {{"rows_parallel_h200.jsonl", 68, 66},
                                {"rows_deepspeed_h200.jsonl", 90, 88},
                                {"rows_parallel_mesh_h200.jsonl", 30, 30}};

/// The report tells what a rank takes that receives its part of each matrix; the rows are of the rank that sends them.
Bytes taken_less(const Parallel& p) { return p.tensor > 1 ? (320 - 64 * (p.tensor - 1)) * kMiB : 0; }

class InUse : public ::testing::TestWithParam<Rows> {};

// NVML at the end less what it read after the first tensor, against the same of the prediction; reserved taken off
// both.
TEST_P(InUse, OutsideOfTheAllocator) {
  std::vector<Bytes> errors;
  for_each_row(GetParam().file, [&](const JsonObject& row, const std::string& /*text*/) {
    const auto end = row.has("nvml_after") ? row.optional_int("nvml_after") : row.optional_int("nvml_end");
    if (!end || !row.has("nvml_context")) return;
    const MeasuredRanks& said = measured_ranks(row);
    if (said.run.parallel.data_parallel == DataParallel::kDp)
      return;  // one process, whose communicator is another kind
    const RankRow& predicted = said.of(row);
    const Bytes measured = *end - row.required_int("nvml_context") - row.required_int("peak_reserved");
    const Bytes told = *predicted.device_used_bytes - *said.device->context_bytes - predicted.peak_reserved;
    errors.push_back(told - measured - taken_less(said.run.parallel));
    if (std::abs(errors.back()) > kTolerance) {
      std::printf("  %-42s rank %d: %+d MiB of %d\n", row.required_string("id").c_str(),
                  static_cast<int>(row.optional_int("rank").value_or(0)), static_cast<int>(errors.back() / kMiB),
                  static_cast<int>(measured / kMiB));
    }
  });
  EXPECT_EQ(errors.size(), GetParam().rows);
  const auto is_near = [](Bytes error) { return std::abs(error) <= kTolerance; };
  EXPECT_GE(static_cast<std::size_t>(std::count_if(errors.begin(), errors.end(), is_near)), GetParam().near);
}

INSTANTIATE_TEST_SUITE_P(Files, InUse, ::testing::ValuesIn(kFilesInUse), [](const auto& info) {
  const std::string file = info.param.file;
  return file.substr(0, file.find('.'));
});

}  // namespace
}  // namespace memcalc::measured
