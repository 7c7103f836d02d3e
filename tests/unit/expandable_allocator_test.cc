// Expandable segments: pages, growth at the end, no slack, what empty_cache unmaps. Peaks of real runs: rows_test.
#include "memcalc/alloc/expandable_allocator.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "memcalc/alloc/caching_allocator.h"

namespace memcalc {
namespace {

TEST(ExpandableAllocator, MapsWholePagesOfEachPool) {
  ExpandableAllocator allocator;
  EXPECT_EQ(allocator.reserved(), 0);
  EXPECT_EQ(allocator.segments(), 0U);
  (void)allocator.allocate(1);
  EXPECT_EQ(allocator.allocated(), kMinBlockSize);
  EXPECT_EQ(allocator.reserved(), kSmallBuffer);
  (void)allocator.allocate(25 * kMiB);  // not a segment of 26 MiB: two pages of 20
  EXPECT_EQ(allocator.reserved(), kSmallBuffer + 2 * kLargeBuffer);
  EXPECT_EQ(allocator.segments(), 2U);
}

TEST(ExpandableAllocator, GrowsTheLastFreeBlockInsteadOfTakingANewSegment) {
  ExpandableAllocator allocator;
  const auto first = allocator.allocate(20 * kMiB);
  allocator.free(first);
  const auto larger = allocator.allocate(30 * kMiB);
  EXPECT_EQ(allocator.address_of(larger), 0);
  EXPECT_EQ(allocator.reserved(), 2 * kLargeBuffer);
}

TEST(ExpandableAllocator, LeavesNoSlackInLargeBlocks) {
  ExpandableAllocator allocator;
  const auto hole = allocator.allocate(4 * kMiB);
  (void)allocator.allocate(4 * kMiB);
  allocator.free(hole);
  const auto inside = allocator.allocate(4 * kMiB - 1024);  // CachingAllocator would hand out all 4 MiB
  EXPECT_EQ(allocator.size_of(inside), 4 * kMiB - 1024);
  EXPECT_EQ(allocator.address_of(inside), 0);
}

TEST(ExpandableAllocator, PrefersAHoleToTheBlockThatCouldGrow) {
  ExpandableAllocator allocator;
  const auto hole = allocator.allocate(6 * kMiB);
  (void)allocator.allocate(10 * kMiB);  // what is left of the page, 4 MiB, fits best but could grow
  allocator.free(hole);
  EXPECT_EQ(allocator.address_of(allocator.allocate(2 * kMiB)), 0);
}

TEST(ExpandableAllocator, EmptyCacheUnmapsPagesWithoutBlocksAndFillsThemAgainFirst) {
  ExpandableAllocator allocator;
  const auto below = allocator.allocate(40 * kMiB);
  const auto above = allocator.allocate(10 * kMiB);
  allocator.free(below);
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved(), kLargeBuffer);
  EXPECT_EQ(allocator.address_of(allocator.allocate(30 * kMiB)), 0);
  EXPECT_EQ(allocator.reserved(), 3 * kLargeBuffer);
  allocator.free(above);
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved(), 2 * kLargeBuffer);
}

TEST(ExpandableAllocator, RandomRunsKeepTheirBooks) {
  std::mt19937 random(7);
  ExpandableAllocator allocator;
  struct Live {
    ExpandableAllocator::Handle handle;
    Bytes begin, end;
  };
  std::vector<Live> live;
  Bytes sum = 0;
  for (int i = 0; i < 20000; ++i) {
    if (live.empty() || random() % 5 < 3) {
      const Bytes size = Bytes{1} << (random() % 26);
      const auto handle = allocator.allocate(size + random() % 1000);
      const Bytes begin = allocator.address_of(handle);
      const bool is_small = allocator.size_of(handle) <= kSmallSize;
      for (const Live& other : live) {  // the pools have ranges of their own
        if ((other.end - other.begin <= kSmallSize) != is_small) continue;
        ASSERT_TRUE(other.end <= begin || begin + allocator.size_of(handle) <= other.begin);
      }
      live.push_back({handle, begin, begin + allocator.size_of(handle)});
      sum += allocator.size_of(handle);
    } else {
      const std::size_t victim = random() % live.size();
      sum -= allocator.size_of(live[victim].handle);
      allocator.free(live[victim].handle);
      live[victim] = live.back();
      live.pop_back();
    }
    if (i % 1000 == 0) allocator.empty_cache();
    if (live.size() > 300) {
      for (const Live& each : live) allocator.free(each.handle);
      live.clear();
      sum = 0;
    }
    ASSERT_EQ(allocator.allocated(), sum);
    ASSERT_GE(allocator.reserved(), sum);
  }
  for (const Live& each : live) allocator.free(each.handle);
  allocator.empty_cache();
  EXPECT_EQ(allocator.allocated(), 0);
  EXPECT_EQ(allocator.reserved(), 0);
  EXPECT_EQ(allocator.segments(), 0U);
}

}  // namespace
}  // namespace memcalc
