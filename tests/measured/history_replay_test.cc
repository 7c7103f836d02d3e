// The allocator against 13 logged runs of PyTorch: their requests, replayed, give the logged peaks, the readings at
// the phases' ends, and with the logged addresses of the segments the address of every block.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "memcalc/alloc/caching_allocator.h"
#include "memcalc/alloc/replay.h"
#include "memcalc/alloc/segment_placement.h"
#include "support/h100_placement.h"
#include "support/history.h"

namespace memcalc {
namespace {

using measured::History;
using measured::Request;

class HistoryReplay : public ::testing::TestWithParam<std::string> {
 protected:
  const History history_ = measured::read_history(GetParam());
};

TEST(Histories, AreAllThere) { EXPECT_THAT(measured::history_ids(), ::testing::SizeIs(13)); }

// Nothing of the log but the requests goes in; both peaks come out.
TEST_P(HistoryReplay, PeaksAreExactWithThePlacementOfTheH100) {
  const SegmentPlacement placement = measured::h100_placement();
  const ReplayResult result = replay(measured::trace_of(history_), {.placement = &placement});
  EXPECT_EQ(result.peak_allocated, history_.peak_allocated);
  EXPECT_EQ(result.peak_reserved, history_.peak_reserved);
  EXPECT_EQ(result.reserved_at_end, history_.marks.back().reserved);
  // In one history (llama-3.2-1b-2l-amp-bf16) segments placed otherwise than in the log decide a tie, and a
  // block at rest keeps 1 MiB more than in the log.
  EXPECT_NEAR(static_cast<double>(result.allocated_at_end), static_cast<double>(history_.marks.back().allocated),
              static_cast<double>(kMiB));
}

// What a card whose placement is unknown gets. 12 of the 13 are exact, the other (gpt2-2l-bf16) is off by 0.05 %.
TEST_P(HistoryReplay, PeaksAreCloseWithPlainDescendingChunks) {
  const ReplayResult result = replay(measured::trace_of(history_));
  EXPECT_NEAR(static_cast<double>(result.peak_allocated), static_cast<double>(history_.peak_allocated),
              0.002 * static_cast<double>(history_.peak_allocated));
  EXPECT_NEAR(static_cast<double>(result.peak_reserved), static_cast<double>(history_.peak_reserved),
              0.002 * static_cast<double>(history_.peak_reserved));
}

TEST_P(HistoryReplay, EveryAddressAndEveryReadingIsExactWithTheLoggedSegments) {
  CachingAllocator allocator(SegmentPlacer::from_log(measured::segment_addresses_of(history_)));
  std::vector<CachingAllocator::Handle> handles(static_cast<std::size_t>(history_.block_count));
  Bytes max_allocated = 0;
  std::size_t differing_addresses = 0;
  std::size_t done = 0;
  for (const measured::Mark& mark : history_.marks) {
    for (; done < mark.requests; ++done) {
      const Request& request = history_.requests[done];
      const auto block = static_cast<std::size_t>(request.block);
      switch (request.kind) {
        case EventKind::kAllocate:
          handles[block] = allocator.allocate(request.requested);
          differing_addresses += allocator.address_of(handles[block]) != request.address ? 1U : 0U;
          break;
        case EventKind::kFree: allocator.free(handles[block]); break;
        case EventKind::kEmptyCache: allocator.empty_cache(); break;
        case EventKind::kReturn: FAIL() << "histories of one stream return a block at once"; break;
      }
      max_allocated = std::max(max_allocated, allocator.allocated());
    }
    EXPECT_EQ(allocator.allocated(), mark.allocated) << "after " << mark.name;
    EXPECT_EQ(allocator.reserved(), mark.reserved) << "after " << mark.name;
    EXPECT_EQ(max_allocated, mark.max_allocated) << "after " << mark.name;
  }
  EXPECT_EQ(done, history_.requests.size());
  EXPECT_EQ(differing_addresses, 0U);
}

TEST_P(HistoryReplay, ResultsAgreeWithEachOther) {
  const Trace trace = measured::trace_of(history_);
  const SegmentPlacement placement = measured::h100_placement();
  const ReplayResult result = replay(trace, {.placement = &placement, .record_timeline = true});
  EXPECT_LE(result.exact_peak, result.peak_allocated);
  EXPECT_LE(result.peak_allocated, result.reserved_at_peak);
  EXPECT_LE(result.reserved_at_peak, result.peak_reserved);
  EXPECT_EQ(*std::max_element(result.phase_peaks.begin(), result.phase_peaks.end()), result.peak_allocated);
  Bytes sum = result.slack_at_peak;
  for (const Bytes bytes : result.categories_at_peak) sum += bytes;
  EXPECT_EQ(sum, result.peak_allocated);
  ASSERT_EQ(result.timeline.size(), trace.events.size());
  EXPECT_EQ(result.timeline[result.peak_event].allocated, result.peak_allocated);
  EXPECT_EQ(result.timeline[result.peak_event].reserved, result.reserved_at_peak);
}

// The reader: what is allocated is freed at most once and with its own size; marks cover all requests.
TEST_P(HistoryReplay, TheReaderGivesAConsistentStream) {
  EXPECT_EQ(history_.marks.size(), 14U);  // built, empty_cache, and four phases of three steps
  EXPECT_EQ(history_.marks.back().requests, history_.requests.size());
  EXPECT_EQ(std::count_if(history_.requests.begin(), history_.requests.end(),
                          [](const Request& request) { return request.kind == EventKind::kEmptyCache; }),
            1);
  EXPECT_EQ(history_.recorded_id, history_.id);
  std::vector<Bytes> live(static_cast<std::size_t>(history_.block_count), -1);
  for (const Request& request : history_.requests) {
    if (request.kind == EventKind::kEmptyCache) continue;
    Bytes& size = live.at(static_cast<std::size_t>(request.block));
    ASSERT_EQ(size, request.kind == EventKind::kAllocate ? -1 : request.requested);
    size = request.kind == EventKind::kAllocate ? request.requested : -2;
  }
}

INSTANTIATE_TEST_SUITE_P(All, HistoryReplay, ::testing::ValuesIn(measured::history_ids()), [](const auto& info) {
  std::string name = info.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

}  // namespace
}  // namespace memcalc
