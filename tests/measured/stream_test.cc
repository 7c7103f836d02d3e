// memcalc's event stream against recorded ones, event by event: 12 allocator histories, 194 more with operators and 90
// of programs (requested bytes from construction on) and 17 traces (block bytes of a steady step).
// A failure prints the first event that differs, with both operators and what is around it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "measured/recorded_streams.h"
#include "memcalc/alloc/caching_allocator.h"
#include "memcalc/alloc/replay.h"
#include "memcalc/spec/run_names.h"
#include "memcalc/train/step.h"
#include "support/history.h"
#include "support/measured_row.h"
#include "support/paths.h"
#include "support/stream.h"

namespace memcalc::measured {
namespace {

void expect_as_stated(const Expectation& stated, Stream recorded, Stream predicted) {
  const bool of_steps =
      stated.expected == kSteps || stated.expected == kStepsHashOrder || stated.expected == kStepsShare;
  if (of_steps) {
    for (Stream* events : {&recorded, &predicted}) {
      std::erase_if(*events, [](const StreamEvent& event) { return event.phase == Phase::kBuild; });
    }
  }
  const Comparison raw = compare(recorded, predicted);
  ::testing::Test::RecordProperty("share_raw", std::to_string(raw.share()));
  if (stated.expected == kEqual || stated.expected == kSteps) {
    EXPECT_TRUE(raw.equal()) << raw.matching << " of " << raw.events << " events match\n" << raw.first_difference;
    return;
  }
  sort_autocast_exits(recorded, predicted);
  const Comparison sorted = compare(recorded, predicted);
  ::testing::Test::RecordProperty("share_sorted", std::to_string(sorted.share()));
  EXPECT_GE(sorted.share(), stated.share) << sorted.matching << " of " << sorted.events << " events match\n"
                                          << sorted.first_difference;
  if (stated.expected == kHashOrder || stated.expected == kStepsHashOrder) {
    EXPECT_TRUE(sorted.equal()) << sorted.first_difference;
  }
}

std::string test_name(const ::testing::TestParamInfo<Expectation>& info) {
  std::string name = info.param.file;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.' || c == '/'; }, '_');
  return name;
}

class HistoryStream : public ::testing::TestWithParam<Expectation> {};

TEST_P(HistoryStream, RequestsAreThoseOfTheRecordedRun) {
  const Expectation& stated = GetParam();
  const RecordedHistory history = read_history_stream(std::string(stated.file) + ".history.tsv", stated.third_step);
  ASSERT_GT(history.events.size(), 150U) << "the reader lost the events";
  const bool in_any_order = stated.expected == kHashOrder || stated.expected == kStepsHashOrder;
  EXPECT_TRUE(!in_any_order || is_autocast(history.of.run.precision))
      << "without autocast nothing excuses another order";
  const SymbolicRun run = run_symbolically(history.of.spec, history.of.run, *history.of.device);
  expect_as_stated(stated, history.events, requests_of(run.trace, history));
}

INSTANTIATE_TEST_SUITE_P(All, HistoryStream, ::testing::ValuesIn(kHistories), test_name);

SymbolicRun run_of_trace(const std::string& id) {
  std::optional<SymbolicRun> run;
  for_each_row("single_gpu.jsonl", [&](const JsonObject& row, const std::string& /*text*/) {
    if (row.required_string("id") != id) return;
    const MeasuredRow of = measured_row(row);
    run = run_symbolically(of.spec, of.run, *of.device);
  });
  if (!run) throw Error(ErrorCode::kInput, "single_gpu.jsonl has no row of " + id);
  return std::move(*run);
}

class TraceStream : public ::testing::TestWithParam<Expectation> {};

TEST_P(TraceStream, BlocksOfTheSteadyStepAreThoseOfTheRecordedOne) {
  const std::string id = GetParam().file;
  const SymbolicRun run = run_of_trace(id);
  const ReplayResult replayed =
      replay(run.trace, {.placement = &*measured_device().placement, .record_timeline = true});
  const bool amp = id.find("-amp-") != std::string::npos;
  expect_as_stated(GetParam(), read_trace_stream(id, amp), steady_blocks_of(run.trace, replayed));
}

INSTANTIATE_TEST_SUITE_P(All, TraceStream, ::testing::ValuesIn(kTraces), test_name);

// The one trace that differs does so in the size of 13 blocks: two free blocks of one size tie, and their addresses
// decide which keeps 1 MiB that is not split off. With the segments where the driver put them it is equal.
TEST(TraceStreams, LlamaUnderAutocastIsEqualWithTheLoggedSegments) {
  const SymbolicRun run = run_of_trace("llama-3.2-1b-2l-trace-amp-bf16");
  const std::vector<Bytes> segments = segment_addresses_of(read_history("llama-3.2-1b-2l-amp-bf16"));
  CachingAllocator allocator(SegmentPlacer::from_log(segments));
  (void)allocator.allocate(4);  // the recorder's warm-up, which took the first segment
  ReplayResult replayed;
  std::vector<CachingAllocator::Handle> handles(run.trace.blocks.size());
  for (const Event& event : run.trace.events) {
    TimelinePoint& point = replayed.timeline.emplace_back();
    if (event.kind == EventKind::kEmptyCache) {
      allocator.empty_cache();
      continue;
    }
    const auto block = static_cast<std::size_t>(event.block);
    const bool allocates = event.kind == EventKind::kAllocate;
    if (allocates) handles[block] = allocator.allocate(run.trace.blocks[block].requested);
    point.block_bytes = allocator.size_of(handles[block]);
    if (!allocates) allocator.free(handles[block]);
  }
  const Stream recorded = read_trace_stream("llama-3.2-1b-2l-trace-amp-bf16", true);
  EXPECT_EQ(compare(recorded, steady_blocks_of(run.trace, replayed)).first_difference, "");
}

std::set<std::string> files_in(const std::string& directory, const std::string& suffix) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(test::measured_dir() / directory)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(suffix)) names.insert(directory + "/" + name.substr(0, name.size() - suffix.size()));
  }
  return names;
}

TEST(Streams, EveryRecordedFileIsCompared) {
  std::set<std::string> compared;
  for (const Expectation& each : kHistories) compared.insert(each.file);
  for (const Expectation& each : kTraces) compared.insert("traces/" + std::string(each.file));
  std::set<std::string> files = files_in("histories", ".history.tsv.gz");
  files.merge(files_in("traces", ".trace.tsv"));
  files.merge(files_in("allocator", ".history.tsv.gz"));
  // A family that memcalc does not model.
  files.erase("allocator/resnet50-b8-fp32");
  EXPECT_THAT(compared, ::testing::ContainerEq(files));
}

// sort_autocast_exits forgives the order within the marked run of frees, nothing else.
StreamEvent event(char kind, Bytes bytes, bool exit = false) {
  StreamEvent result;
  result.is_free = kind == '-';
  result.phase = Phase::kForward;
  result.bytes = bytes;
  result.autocast_exit = exit;
  return result;
}

TEST(AutocastExits, OnlyTheirOrderIsForgiven) {
  const Stream recorded = {event('+', 8), event('-', 1),       event('-', 2),
                           event('+', 8), event('-', 3, true), event('-', 4)};
  Stream ours = {event('+', 8), event('-', 1), event('-', 2), event('+', 8), event('-', 4), event('-', 3)};
  const auto equal_when_sorted = [&](Stream predicted) {
    Stream sorted = recorded;
    sort_autocast_exits(sorted, predicted);
    return compare(sorted, predicted).equal();
  };
  EXPECT_FALSE(compare(recorded, ours).equal());
  EXPECT_TRUE(equal_when_sorted(ours));
  std::swap(ours[1], ours[2]);
  EXPECT_FALSE(equal_when_sorted(ours)) << "a run without autocast's exit";
  std::swap(ours[1], ours[2]);
  ours[4].bytes = 5;
  EXPECT_FALSE(equal_when_sorted(ours)) << "another size";
}

TEST(Compare, CountsWhatMatchesAndShowsWhereItParts) {
  const Stream recorded = {event('+', 1), event('+', 2), event('-', 1), event('+', 3), event('-', 3)};
  const Stream predicted = {event('+', 1), event('-', 1), event('+', 3), event('+', 4), event('-', 3), event('-', 4)};
  const Comparison comparison = compare(recorded, predicted);
  EXPECT_EQ(comparison.events, 6U);
  EXPECT_EQ(comparison.matching, 4U);
  EXPECT_THAT(comparison.first_difference, ::testing::HasSubstr("event 1 of 5 recorded, 6 predicted"));
  EXPECT_THAT(comparison.first_difference, ::testing::HasSubstr("recorded:  0 forward +2"));
  EXPECT_TRUE(compare(recorded, recorded).equal());
}

}  // namespace
}  // namespace memcalc::measured
