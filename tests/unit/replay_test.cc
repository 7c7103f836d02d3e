// replay() of hand-made and of random traces: what it reports, what it refuses, and what always holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "memcalc/alloc/caching_allocator.h"
#include "memcalc/alloc/replay.h"
#include "memcalc/base/error.h"
#include "support/h100_placement.h"
#include "support/reference_allocator.h"

namespace memcalc {
namespace {

using ::testing::ElementsAre;

class TraceBuilder {
 public:
  TraceBuilder& phase(Phase phase) {
    phase_ = phase;
    return *this;
  }

  TraceBuilder& allocate(Bytes requested, Category category = Category::kTemporaries) {
    trace_.blocks.push_back({requested, category});
    return event(EventKind::kAllocate, static_cast<std::int32_t>(trace_.blocks.size()) - 1);
  }

  TraceBuilder& free(std::int32_t block) { return event(EventKind::kFree, block); }
  TraceBuilder& empty_cache() { return event(EventKind::kEmptyCache, -1); }

  TraceBuilder& event(EventKind kind, std::int32_t block) {
    trace_.events.push_back({nullptr, nullptr, block, kind, phase_, 0});
    return *this;
  }

  [[nodiscard]] const Trace& trace() const { return trace_; }

 private:
  Trace trace_;
  Phase phase_ = Phase::kBuild;
};

TEST(Replay, OfNothingIsNothing) {
  const ReplayResult result = replay(Trace{}, {.record_timeline = true});
  EXPECT_EQ(result.peak_allocated, 0);
  EXPECT_EQ(result.peak_reserved, 0);
  EXPECT_EQ(result.exact_peak, 0);
  EXPECT_TRUE(result.timeline.empty());
}

TEST(Replay, ReportsPeaksWithTheirInstantAndCategories) {
  TraceBuilder builder;
  builder
      .allocate(100, Category::kWeights)          // 0: 512
      .allocate(11 * kMiB, Category::kGradients)  // 1: 512 + 12 MiB
      .phase(Phase::kForward)
      .allocate(3 * kMiB, Category::kActivations)  // 2: + 3 MiB = 512 + 15 MiB
      .phase(Phase::kBackward)
      .free(2)  // 3: 512 + 12 MiB
      .phase(Phase::kOptimizer)
      .allocate(20 * kMiB)
      .free(3)         // 4: 512 + 32 MiB; 5: 512 + 12 MiB
      .empty_cache();  // 6: 20 MiB go
  const ReplayResult result = replay(builder.trace(), {.record_timeline = true});
  EXPECT_EQ(result.peak_allocated, 512 + 32 * kMiB);
  EXPECT_EQ(result.peak_event, 4U);
  EXPECT_EQ(result.peak_reserved, 34 * kMiB);  // 2 + 12 + 20
  EXPECT_EQ(result.reserved_at_peak, 34 * kMiB);
  EXPECT_EQ(result.segments_at_peak, 3U);
  EXPECT_EQ(result.exact_peak, 100 + 31 * kMiB);
  EXPECT_EQ(result.exact_peak_event, 4U);
  EXPECT_EQ(result.categories_at_peak[static_cast<std::size_t>(Category::kWeights)], 100);
  EXPECT_EQ(result.categories_at_peak[static_cast<std::size_t>(Category::kGradients)], 11 * kMiB);
  EXPECT_EQ(result.categories_at_peak[static_cast<std::size_t>(Category::kActivations)], 0);
  EXPECT_EQ(result.categories_at_peak[static_cast<std::size_t>(Category::kTemporaries)], 20 * kMiB);
  EXPECT_EQ(result.slack_at_peak, 412 + kMiB);
  EXPECT_EQ(result.allocated_at_end, 512 + 12 * kMiB);
  EXPECT_EQ(result.reserved_at_end, 14 * kMiB);
  // Build, zero, forward, backward (what is there when it begins), delete, optimizer, decode, evaluation, prepare,
  // merge, save.
  EXPECT_THAT(result.phase_peaks,
              ElementsAre(512 + 12 * kMiB, 0, 512 + 15 * kMiB, 512 + 15 * kMiB, 0, 512 + 32 * kMiB, 0, 0, 0, 0, 0));
  EXPECT_THAT(result.phase_reserved, ElementsAre(14 * kMiB, 0, 34 * kMiB, 34 * kMiB, 0, 34 * kMiB, 0, 0, 0, 0, 0));
  std::vector<Bytes> block_bytes;
  for (const TimelinePoint& point : result.timeline) block_bytes.push_back(point.block_bytes);
  EXPECT_THAT(block_bytes, ElementsAre(512, 12 * kMiB, 3 * kMiB, 3 * kMiB, 20 * kMiB, 20 * kMiB, 0));
  EXPECT_EQ(result.timeline.back().reserved, 14 * kMiB);
}

struct BrokenTrace {
  const char* name;
  TraceBuilder builder;
  ErrorCode code;
};

TEST(Replay, RefusesBrokenTraces) {
  constexpr Bytes kHalf = Bytes{1} << 62;
  const std::vector<BrokenTrace> cases = {
      {"free before allocation", TraceBuilder().allocate(1).event(EventKind::kFree, 1), ErrorCode::kInternal},
      {"freed twice", TraceBuilder().allocate(1).free(0).free(0), ErrorCode::kInternal},
      {"allocated twice", TraceBuilder().allocate(1).event(EventKind::kAllocate, 0), ErrorCode::kInternal},
      {"allocated again", TraceBuilder().allocate(1).free(0).event(EventKind::kAllocate, 0), ErrorCode::kInternal},
      {"no such block", TraceBuilder().event(EventKind::kAllocate, 0), ErrorCode::kInternal},
      {"no block", TraceBuilder().allocate(1).event(EventKind::kFree, -1), ErrorCode::kInternal},
      {"negative size", TraceBuilder().allocate(-5), ErrorCode::kInternal},
      {"one beyond 2^63", TraceBuilder().allocate(std::numeric_limits<Bytes>::max()), ErrorCode::kOverflow},
      {"sum beyond 2^63", TraceBuilder().allocate(kHalf).allocate(kHalf), ErrorCode::kOverflow},
  };
  for (const BrokenTrace& broken : cases) {
    try {
      (void)replay(broken.builder.trace());
      ADD_FAILURE() << broken.name << ": nothing was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), broken.code) << broken.name << ": " << error.what();
    }
  }
}

TEST(Replay, BlocksOfNoBytesAreAllowed) {
  const ReplayResult result = replay(TraceBuilder().allocate(0).allocate(0).free(0).free(1).trace());
  EXPECT_EQ(result.peak_allocated, 0);
  EXPECT_EQ(result.peak_reserved, 0);
}

// A trace with the habits of a real one: few distinct sizes, small and large, some exactly at the boundaries.
Trace random_trace(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&random](std::size_t limit) { return static_cast<std::size_t>(random() % limit); };
  std::vector<Bytes> sizes = {
      0, 1, 512, 513, kMiB, kMiB + 1, kMiB - 512, 2 * kMiB, 10 * kMiB, 10 * kMiB - 1, 11 * kMiB - 512, 20 * kMiB};
  for (int i = 0; i < 20; ++i) {
    sizes.push_back(static_cast<Bytes>(random() % (std::uint32_t{1} << (10 + below(18)))));
  }
  TraceBuilder builder;
  std::vector<std::int32_t> live;
  const std::size_t count = 3000;
  for (std::size_t i = 0; i < count; ++i) {
    builder.phase(static_cast<Phase>(i * kPhaseCount / count));
    // The number of live blocks swings, so that segments fill and empty.
    const std::size_t target = (i / 500) % 2 == 0 ? 300 : 20;
    if (live.empty() || below(target + live.size()) < target) {
      live.push_back(static_cast<std::int32_t>(builder.trace().blocks.size()));
      builder.allocate(sizes[below(sizes.size())], static_cast<Category>(below(kCategoryCount)));
    } else {
      const std::size_t chosen = below(3) == 0 ? live.size() - 1 : below(live.size());
      builder.free(live[chosen]);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(chosen));
    }
    if (below(200) == 0) builder.empty_cache();
  }
  return builder.trace();
}

class RandomTrace : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  const Trace trace_ = random_trace(GetParam());
};

// With and without a card's placement: the same address, size and sums after every event.
TEST_P(RandomTrace, AgreesWithTheReference) {
  for (const bool measured_placement : {false, true}) {
    const SegmentPlacer placer = measured_placement ? SegmentPlacer(measured::h100_placement()) : SegmentPlacer();
    CachingAllocator allocator(placer);
    reference::ReferenceAllocator reference(placer);
    std::vector<CachingAllocator::Handle> handles(trace_.blocks.size());
    std::vector<Bytes> addresses(trace_.blocks.size());
    for (std::size_t i = 0; i < trace_.events.size(); ++i) {
      const Event& event = trace_.events[i];
      const auto block = static_cast<std::size_t>(event.block);
      if (event.kind == EventKind::kEmptyCache) {
        allocator.empty_cache();
        reference.empty_cache();
      } else if (const Bytes requested = trace_.blocks[block].requested; requested == 0) {
        handles[block] = event.kind == EventKind::kAllocate ? allocator.allocate(0) : handles[block];
      } else if (event.kind == EventKind::kAllocate) {
        handles[block] = allocator.allocate(requested);
        addresses[block] = reference.allocate(requested);
        ASSERT_EQ(allocator.address_of(handles[block]), addresses[block]) << "event " << i;
        ASSERT_EQ(allocator.size_of(handles[block]), reference.size_of(addresses[block])) << "event " << i;
      } else {
        allocator.free(handles[block]);
        reference.free(addresses[block]);
      }
      ASSERT_EQ(allocator.allocated(), reference.allocated()) << "event " << i;
      ASSERT_EQ(allocator.reserved(), reference.reserved()) << "event " << i;
    }
  }
}

TEST_P(RandomTrace, ExactIsAtMostAllocatedIsAtMostReserved) {
  const ReplayResult result = replay(trace_, {.record_timeline = true});
  EXPECT_LE(result.exact_peak, result.peak_allocated);
  EXPECT_LE(result.peak_allocated, result.peak_reserved);
  Bytes exact = 0;
  Bytes peak_allocated = 0;
  Bytes peak_reserved = 0;
  for (std::size_t i = 0; i < trace_.events.size(); ++i) {
    const Event& event = trace_.events[i];
    const TimelinePoint& point = result.timeline[i];
    if (event.kind != EventKind::kEmptyCache) {
      const Bytes requested = trace_.blocks[static_cast<std::size_t>(event.block)].requested;
      exact += event.kind == EventKind::kAllocate ? requested : -requested;
      EXPECT_GE(point.block_bytes, requested);
    }
    EXPECT_LE(exact, point.allocated);
    EXPECT_LE(point.allocated, point.reserved);
    peak_allocated = std::max(peak_allocated, point.allocated);
    peak_reserved = std::max(peak_reserved, point.reserved);
  }
  EXPECT_EQ(peak_allocated, result.peak_allocated);
  EXPECT_EQ(peak_reserved, result.peak_reserved);
  const auto& categories = result.categories_at_peak;
  EXPECT_EQ(std::accumulate(categories.begin(), categories.end(), result.slack_at_peak), result.peak_allocated);
  EXPECT_GE(result.slack_at_peak, 0);
}

TEST_P(RandomTrace, ReplaysTheSameEachTime) {
  const SegmentPlacement placement = measured::h100_placement();
  const ReplayResult first = replay(trace_, {.placement = &placement});
  const ReplayResult second = replay(trace_, {.placement = &placement, .record_timeline = true});
  EXPECT_EQ(first.peak_allocated, second.peak_allocated);
  EXPECT_EQ(first.peak_event, second.peak_event);
  EXPECT_EQ(first.peak_reserved, second.peak_reserved);
  EXPECT_EQ(first.exact_peak_event, second.exact_peak_event);
  EXPECT_EQ(first.categories_at_peak, second.categories_at_peak);
  EXPECT_EQ(first.phase_peaks, second.phase_peaks);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomTrace, ::testing::Range(std::uint32_t{0}, std::uint32_t{40}));

}  // namespace
}  // namespace memcalc
