// memcalc's requests of one rank against those of a recorded run on several GPUs (tests/measured/parallel), in the last
// of three steps: sizes and order of what is allocated and freed, on whichever stream. The shares are floors, what is
// reached today.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/train/step.h"
#include "support/measured_row.h"
#include "support/paths.h"
#include "support/recorded_file.h"
#include "support/stream.h"

namespace memcalc::measured {
namespace {

struct Floor {
  const char* file;
  double share;
};

void PrintTo(const Floor& floor, std::ostream* out) { *out << floor.file; }

constexpr Floor kFloors[] = {
    // clang-format off
    {"bertL-2l-dsz1-fp16-w2-rank0", 0.84},
    {"bertL-2l-dsz1-fp16-w2-rank1", 0.783},
    {"bertL-2l-dsz1-fp32-w2-rank0", 0.855},
    {"bertL-2l-dsz2-fp16-w2-rank0", 0.84},
    {"bertL-2l-dsz2-fp16-w2-rank1", 0.783},
    {"bertL-2l-dsz2-fp32-w2-rank0", 0.855},
    {"bertL-2l-dsz3-fp16-w2-rank0", 0.886},
    {"bertL-2l-dsz3-fp16-w2-rank1", 0.886},
    {"bertL-2l-dsz3-fp32-w2-rank0", 0.892},
    {"llama-2l-cp-allgather-bf16-w2-rank0", 0.996},
    {"llama-2l-dsz1-bf16-accum2-w2-rank0", 0.929},
    {"llama-2l-dsz1-bf16-fp32accum-w2-rank0", 0.763},
    {"llama-2l-dsz1-bf16-w2-rank0", 0.872},
    {"llama-2l-dsz1-bf16-w2-rank1", 0.789},
    {"llama-2l-dsz2-bf16-accum2-w2-rank0", 0.929},
    {"llama-2l-dsz2-bf16-clip-w2-rank0", 0.872},
    {"llama-2l-dsz2-bf16-fp32accum-w2-rank0", 0.862},
    {"llama-2l-dsz2-bf16-offload-w2-rank0", 0.977},
    {"llama-2l-dsz2-bf16-overlap-w2-rank0", 0.872},
    {"llama-2l-dsz2-bf16-smallbucket-w2-rank0", 0.872},
    {"llama-2l-dsz2-bf16-w1-rank0", 0.789},
    {"llama-2l-dsz2-bf16-w2-rank0", 0.872},
    {"llama-2l-dsz2-bf16-w2-rank1", 0.789},
    {"llama-2l-dsz3-bf16-accum2-w2-rank0", 0.95},
    {"llama-2l-dsz3-bf16-ckpt-w2-rank0", 0.924},
    {"llama-2l-dsz3-bf16-clip-w2-rank0", 0.914},
    {"llama-2l-dsz3-bf16-init-w2-rank0", 0.911},
    {"llama-2l-dsz3-bf16-offload-w2-rank0", 0.714},
    {"llama-2l-dsz3-bf16-offloadparam-w2-rank0", 0.71},
    {"llama-2l-dsz3-bf16-small-w2-rank0", 0.902},
    {"llama-2l-dsz3-bf16-w1-rank0", 0.909},
    {"llama-2l-dsz3-bf16-w2-rank0", 0.914},
    {"llama-2l-dsz3-bf16-w2-rank1", 0.914},
    {"llama-2l-dsz1-sp2-bf16-ckpt-b1-w2-rank0", 0.906},
    {"llama-2l-dsz2-sp2-bf16-w2-rank0", 0.878},
    {"llama-2l-dsz3-sp2-bf16-ckpt-w2-rank0", 0.924},
    {"llama-2l-dsz3-sp2-bf16-w2-rank0", 0.906},
    {"llama-2l-fsdp1-mp-w2-rank0", 0.947},
    {"llama-2l-fsdp2-lora-bf16-w2-rank0", 0.979},
    {"llama-2l-fsdp2-mp-w2-rank0", 0.968},
    {"llama-2l-fsdp2-offload-mp-w2-rank0", 0.972},
    {"llama-2l-tp-bf16-w2-rank0", 1},
    {"llama-4l-pp-1f1b-bf16-w2-rank0", 1},
    {"llama-4l-pp-1f1b-bf16-w2-rank1", 0.999},
    {"llama-4l-pp-gpipe-bf16-w2-rank0", 1},
    {"llama-4l-pp-gpipe-bf16-w2-rank1", 0.998},
    {"bertL-2l-dp-w2-rank0", 0.981},
    {"llama-8l-pp-own-zerobubble-bf16-w2-rank0", 0.999},
    {"llama-8l-pp-own-zerobubble-bf16-w2-rank1", 0.997},
    {"trainer-fsdp2-gpt2-11-rank0", 0.999},
    {"trainer-fsdp2-pythia-410m-6-rank0", 0.989},
    {"trainer-fsdp2-tinyllama-1.1b-1-rank0", 0.977},
    {"trainer-lora-fsdp2-mistral-7b-1-rank0", 0.971},
    {"trainer-lora-zero3-tinyllama-1.1b-5-rank0", 0.931},
    {"trainer-lora-zero3-tinyllama-1.1b-10-rank0", 0.955},
    {"trainer-qlora-ddp-tinyllama-1.1b-16-rank0", 0.995},
    {"trainer-qlora-fsdp2-tinyllama-1.1b-0-rank0", 0.987},
    {"trainer-qlora-zero3-tinyllama-1.1b-4-rank0", 0.925},
    {"trainer-zero1-mistral-7b-0-rank0", 0.941},
    {"trainer-zero2-pythia-410m-1-rank0", 0.934},
    {"trainer-zero3-gpt2-2-rank0", 0.953},
    {"trainer-bertL-2l-ddp-w2-rank0", 0.987},
    {"trainer-bertL-2l-dp-w2-rank0", 0.968},
    {"trainer-llama-2l-fsdp1-ampbf16-w2-rank0", 0.867},
    {"trainer-llama-2l-fsdp2-ampbf16-w2-rank0", 0.939},
    {"trainer-llama-2l-fsdp2-bf16-w2-rank0", 0.954},
    {"llama-2l-ddp-tp2-bf16-w4-rank0", 1},
    {"llama-2l-fsdp2-cp2-mp-w4-rank0", 0.969},
    {"llama-2l-fsdp2-tp2-mp-w4-rank0", 0.969},
    {"llama-2l-hsdp2-mp-w4-rank0", 0.968},
    {"llama-2l-tp2-cp2-bf16-w4-rank0", 0.996},
    {"llama-4l-ddp-pp2-bf16-w4-rank0", 1},
    {"llama-4l-ddp-pp2-bf16-w4-rank2", 0.999},
    {"llama-4l-fsdp2-pp2-mp-w4-rank0", 0.98},
    {"llama-4l-fsdp2-pp2-mp-w4-rank2", 0.983},
    {"mixtral-2l-ep4-bf16-w4-rank0", 0.995},
    {"llama-2l-sp-fsdp2-tp2-mp-w8-rank0", 0.973},
    {"llama-2l-sp-tp2-amp-rank0", 0.997},
    {"llama-2l-sp-tp4-bf16-rank0", 1},
    {"llama-2l-sploss-fsdp2-tp4-mp-w8-rank0", 0.974},
    {"llama-2l-sploss-tp4-bf16-rank0", 1},
    {"llama-2l-sploss-tp8-b1-fp32-rank0", 1},
    {"llama-8l-fsdp2-interleaved4-mp-w4-rank2", 1},
    {"llama-8l-fsdp2-zerobubble-noreshard-mp-w4-rank2", 0.999},
    {"llama-8l-pp2-cp2-ring-interleaved-bf16-w4-rank2", 0.981},
    {"llama-8l-tp2-zerobubble-bf16-w4-rank2", 0.999},
    {"llama-8l-zbv-bf16-w4-rank0", 0.998},
    {"llama-8l-zerobubble-ckpt-bf16-w2-rank0", 0.996},
    // clang-format on
};

struct Recording {
  MeasuredRow of;
  std::int64_t rank = 0;
  Stream last_step;
};

/// Rows of the log are: action, address, size, stream and, of allocations, the Python frames.
Recording read_recording(const std::string& name) {
  Recording recording;
  const std::size_t rank_at = name.rfind("-rank");
  recording.rank = std::stoll(name.substr(rank_at + 5));
  std::istringstream text = open_recorded((test::measured_dir() / "parallel" / (name + ".history.tsv")).string());
  std::string head;
  std::getline(text, head);
  recording.of = measured_row(JsonDocument::parse(head.substr(std::string("# ").size()), name).root());
  std::int64_t first = 0, last = 0, row = 0;
  std::unordered_map<std::string, Bytes> live;
  for (std::string line; std::getline(text, line);) {
    if (line.starts_with("# [")) {  // [events so far, "phase just ended", …]
      const std::int64_t events = std::stoll(line.substr(3));
      if (line.find("\"step 1 ") != std::string::npos) first = events;
      if (line.find("\"step 2 ") != std::string::npos) last = events;
    }
    if (line.starts_with("#") || line.starts_with("action")) continue;
    std::istringstream fields(line);
    std::string action, address, label;
    Bytes size = 0, stream = 0;
    fields >> action >> address >> size >> stream >> label;
    const bool counts = row >= first && row < last;
    ++row;
    if (action == "alloc") live[address] = size;
    if (action == "alloc" && counts) recording.last_step.push_back({.bytes = size, .label = label});
    if (action != "free_requested") continue;
    if (counts) recording.last_step.push_back({.is_free = true, .bytes = live[address]});
  }
  return recording;
}

Stream last_step_of(const Trace& trace) {
  Stream stream;
  for (const Event& event : trace.events) {
    if (!event.moves_block() || event.step != 2) continue;
    const Block& block = trace.blocks[static_cast<std::size_t>(event.block)];
    stream.push_back({.is_free = event.kind == EventKind::kFree,
                      .bytes = block.requested,
                      .label = event.op == nullptr ? "" : event.op->name});
  }
  return stream;
}

class ParallelStream : public ::testing::TestWithParam<Floor> {};

TEST_P(ParallelStream, RequestsOfTheLastStepAreThoseOfTheRecordedRun) {
  const Recording recording = read_recording(GetParam().file);
  ASSERT_GT(recording.last_step.size(), 100U) << "the reader lost the events";
  const MeasuredRow& of = recording.of;
  const SymbolicRun run = run_symbolically(of.spec, of.run, *of.device, recording.rank);
  const Comparison compared = compare(recording.last_step, last_step_of(run.trace));
  ::testing::Test::RecordProperty("share", std::to_string(compared.share()));
  EXPECT_GE(compared.share(), GetParam().share) << compared.matching << " of " << compared.events << " events match\n"
                                                << compared.first_difference;
}

INSTANTIATE_TEST_SUITE_P(All, ParallelStream, ::testing::ValuesIn(kFloors), [](const auto& info) {
  std::string name = info.param.file;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

TEST(ParallelStreams, EveryRecordedFileIsCompared) {
  std::set<std::string> compared, files;
  for (const Floor& each : kFloors) compared.insert(each.file);
  constexpr std::string_view kSuffix = ".history.tsv.gz";
  for (const auto& entry : std::filesystem::directory_iterator(test::measured_dir() / "parallel")) {
    const std::string name = entry.path().filename().string();
    files.insert(name.substr(0, name.size() - kSuffix.size()));
  }
  EXPECT_EQ(compared, files);
}

}  // namespace
}  // namespace memcalc::measured
