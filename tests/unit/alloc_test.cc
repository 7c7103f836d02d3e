// The rules of the caching allocator one by one, as docs/allocator.md numbers them, its limits, and its free list.
// Numbers in the comments are running sums. What holds for any trace is in replay_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "memcalc/alloc/caching_allocator.h"
#include "memcalc/alloc/exact_allocator.h"
#include "memcalc/alloc/free_list.h"
#include "memcalc/base/error.h"

namespace memcalc {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr Bytes kMax = std::numeric_limits<Bytes>::max();

// What an operation throws, as a code; nothing thrown is a failure.
template <typename Operation>
ErrorCode error_of(const Operation& operation) {
  try {
    operation();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::kUsage;
}

// --- Rules 1, 3, 4: rounding, pools, segments, remainders. One request on an empty allocator. ---

struct FirstRequest {
  const char* name;
  Bytes requested;
  Bytes allocated;  // the size of its block
  Bytes reserved;   // the segment
};

class OneRequest : public ::testing::TestWithParam<FirstRequest> {};

TEST_P(OneRequest, GetsItsBlockAndItsSegment) {
  CachingAllocator allocator;
  const auto block = allocator.allocate(GetParam().requested);
  EXPECT_EQ(allocator.size_of(block), GetParam().allocated);
  EXPECT_EQ(allocator.allocated(), GetParam().allocated);
  EXPECT_EQ(allocator.reserved(), GetParam().reserved);
  allocator.free(block);
  EXPECT_EQ(allocator.allocated(), 0);
  EXPECT_EQ(allocator.reserved(), GetParam().reserved);  // segments stay
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved(), 0);
  EXPECT_EQ(allocator.segments(), 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Rules, OneRequest,
    ::testing::Values(
        FirstRequest{"Nothing", 0, 0, 0}, FirstRequest{"OneByte", 1, 512, 2 * kMiB},
        FirstRequest{"OneUnit", 512, 512, 2 * kMiB}, FirstRequest{"OneByteMoreThanAUnit", 513, 1024, 2 * kMiB},
        // Exactly 1 MiB is small; one byte more is large and rounds to 1 MiB + 512.
        FirstRequest{"LargestSmall", kMiB, kMiB, 2 * kMiB},
        FirstRequest{"SmallestLarge", kMiB + 1, kMiB + 512, 20 * kMiB},
        FirstRequest{"RoundsIntoTheSmallPool", kMiB - 1, kMiB, 2 * kMiB},
        // Under 10 MiB a segment of 20 MiB; from 10 MiB on one of the request's own, in steps of 2 MiB.
        FirstRequest{"LargestShared", 10 * kMiB - 512, 10 * kMiB - 512, 20 * kMiB},
        FirstRequest{"RoundsToTenMebibytes", 10 * kMiB - 511, 10 * kMiB, 10 * kMiB},
        FirstRequest{"SmallestOfItsOwn", 10 * kMiB, 10 * kMiB, 10 * kMiB},
        // 12 - 11 = 1 MiB left: not more than 1 MiB, so it stays inside and counts as allocated.
        FirstRequest{"RemainderOfExactlyOneMebibyte", 11 * kMiB, 12 * kMiB, 12 * kMiB},
        // 12 - 10.9995 = 1 MiB + 512 B left: a block of its own.
        FirstRequest{"RemainderJustOverOneMebibyte", 11 * kMiB - 512, 11 * kMiB - 512, 12 * kMiB},
        FirstRequest{"SlackOfAWeightGradient", 525'336'576, 526'385'152, 526'385'152},  // measured: facts 14.4
        FirstRequest{"WordEmbeddingOfBert", 125'018'112, 125'829'120, 125'829'120}),    // measured: facts 14.13
    [](const auto& info) { return std::string(info.param.name); });

// --- Rules 2, 4, 5: which block, splitting, merging. ---

TEST(CachingAllocator, TheRequestTakesTheFrontAndTheRemainderIsUsedNext) {
  CachingAllocator allocator;
  const auto a = allocator.allocate(512);
  const auto b = allocator.allocate(1000);
  const auto c = allocator.allocate(512);
  EXPECT_EQ(allocator.address_of(b), allocator.address_of(a) + 512);         // 512
  EXPECT_EQ(allocator.address_of(c), allocator.address_of(a) + 512 + 1024);  // 1,536
  EXPECT_EQ(allocator.allocated(), 2048);
  EXPECT_EQ(allocator.reserved(), 2 * kMiB);
}

TEST(CachingAllocator, ASmallRemainderOf512IsABlock) {
  CachingAllocator allocator;
  const auto first = allocator.allocate(kMiB);
  const auto second = allocator.allocate(kMiB - 512);
  const auto third = allocator.allocate(512);  // 1 MiB + (1 MiB - 512) + 512 = 2 MiB: the segment is full
  EXPECT_EQ(allocator.reserved(), 2 * kMiB);
  EXPECT_EQ(allocator.allocated(), 2 * kMiB);
  EXPECT_EQ(allocator.address_of(third), allocator.address_of(second) + kMiB - 512);
  const auto fourth = allocator.allocate(512);
  EXPECT_EQ(allocator.reserved(), 4 * kMiB);
  for (const auto block : {first, second, third, fourth}) allocator.free(block);
  EXPECT_EQ(allocator.allocated(), 0);
}

TEST(CachingAllocator, PoolsDoNotLendToEachOther) {
  CachingAllocator allocator;
  allocator.free(allocator.allocate(20 * kMiB));
  const auto small = allocator.allocate(512);  // 20 MiB are free, but large
  EXPECT_EQ(allocator.reserved(), 22 * kMiB);
  allocator.free(small);
  const auto large = allocator.allocate(kMiB + 512);  // 2 MiB are free, but small; the 20 are taken
  EXPECT_EQ(allocator.reserved(), 22 * kMiB);
  EXPECT_EQ(allocator.size_of(large), kMiB + 512);
}

TEST(CachingAllocator, TheSmallestBlockThatHoldsTheRequestIsTaken) {
  CachingAllocator allocator;
  const auto huge = allocator.allocate(40 * kMiB);
  const auto fitting = allocator.allocate(30 * kMiB);
  const auto small = allocator.allocate(28 * kMiB);
  const Bytes address = allocator.address_of(fitting);
  for (const auto block : {huge, fitting, small}) allocator.free(block);
  const auto block = allocator.allocate(29 * kMiB);
  EXPECT_EQ(allocator.address_of(block), address);
  EXPECT_EQ(allocator.size_of(block), 30 * kMiB);  // 30 - 29 = 1 MiB: kept inside
  EXPECT_EQ(allocator.reserved(), 98 * kMiB);      // 40 + 30 + 28
}

TEST(CachingAllocator, AmongEqualBlocksTheLowestAddressIsTaken) {
  const std::vector<Bytes> addresses = {300 * kMiB, 100 * kMiB, 200 * kMiB};
  CachingAllocator allocator(SegmentPlacer::from_log(addresses));
  std::vector<CachingAllocator::Handle> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(allocator.allocate(32 * kMiB));
  for (const auto block : blocks) allocator.free(block);
  std::vector<Bytes> taken;
  for (int i = 0; i < 3; ++i) taken.push_back(allocator.address_of(allocator.allocate(32 * kMiB)));
  EXPECT_THAT(taken, ElementsAre(100 * kMiB, 200 * kMiB, 300 * kMiB));
}

// Three blocks fill a segment; every order of freeing them must give back the one free block of 20 MiB.
TEST(CachingAllocator, FreeNeighboursMergeInEveryOrder) {
  std::vector<std::size_t> order = {0, 1, 2};
  do {
    CachingAllocator allocator;
    const std::vector<CachingAllocator::Handle> blocks = {allocator.allocate(8 * kMiB), allocator.allocate(4 * kMiB),
                                                          allocator.allocate(8 * kMiB)};  // 20 MiB
    ASSERT_EQ(allocator.reserved(), 20 * kMiB);
    const Bytes address = allocator.address_of(blocks[0]);
    for (const std::size_t i : order) allocator.free(blocks[i]);
    const auto whole = allocator.allocate(20 * kMiB);
    EXPECT_EQ(allocator.address_of(whole), address);
    EXPECT_EQ(allocator.reserved(), 20 * kMiB);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(CachingAllocator, BlocksOfDifferentSegmentsNeverMerge) {
  const std::vector<Bytes> adjacent = {0, 20 * kMiB, 64 * kMiB};
  CachingAllocator allocator(SegmentPlacer::from_log(adjacent));
  const auto first = allocator.allocate(20 * kMiB);
  const auto second = allocator.allocate(20 * kMiB);
  allocator.free(first);
  allocator.free(second);
  EXPECT_EQ(allocator.address_of(allocator.allocate(40 * kMiB)), 64 * kMiB);
  EXPECT_EQ(allocator.reserved(), 80 * kMiB);
}

// --- Rule 5: empty_cache. ---

TEST(CachingAllocator, EmptyCacheReturnsWhollyFreeSegmentsOnly) {
  CachingAllocator allocator;
  const auto small = allocator.allocate(512);        // segment of 2
  const auto large = allocator.allocate(30 * kMiB);  // + 30 = 32
  const auto kept = allocator.allocate(4 * kMiB);    // + 20 = 52, of which 16 are free
  EXPECT_EQ(allocator.reserved(), 52 * kMiB);
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved(), 52 * kMiB);
  allocator.free(small);
  allocator.free(large);
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved(), 20 * kMiB);
  EXPECT_EQ(allocator.segments(), 1U);
  EXPECT_EQ(allocator.allocated(), 4 * kMiB);
  allocator.free(kept);
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved(), 0);
}

TEST(CachingAllocator, SegmentsOfAPrivatePoolStay) {
  CachingAllocator allocator({}, std::numeric_limits<Bytes>::max(), 1);
  allocator.free(allocator.allocate(30 * kMiB));
  allocator.free(allocator.allocate(20 * kMiB, 1));
  EXPECT_EQ(allocator.reserved(), 50 * kMiB);
  allocator.empty_cache();
  EXPECT_EQ(allocator.reserved(), 20 * kMiB);
  (void)allocator.allocate(20 * kMiB, 1);
  EXPECT_EQ(allocator.reserved(), 20 * kMiB) << "its own stream takes it up again";
}

// --- Limits. ---

TEST(CachingAllocator, RefusesWhatLeaves63Bits) {
  for (const Bytes requested : {kMax, kMax - 511, kMax - 2 * kMiB + 1}) {
    CachingAllocator allocator;
    EXPECT_EQ(error_of([&] { (void)allocator.allocate(requested); }), ErrorCode::kOverflow) << requested;
  }
  CachingAllocator allocator;
  (void)allocator.allocate(kMax / 2);
  EXPECT_EQ(error_of([&] { (void)allocator.allocate(kMax / 2 + kMiB); }), ErrorCode::kOverflow);
  EXPECT_EQ(error_of([&] { (void)allocator.allocate(-1); }), ErrorCode::kInternal);
  EXPECT_EQ(error_of([&] { (void)allocator.allocate(std::numeric_limits<Bytes>::min()); }), ErrorCode::kInternal);
}

TEST(ExactAllocator, SumsWhatWasRequested) {
  ExactAllocator allocator;
  const auto a = allocator.allocate(1);
  const auto b = allocator.allocate(kMax - 1);
  EXPECT_EQ(allocator.allocated(), kMax);
  EXPECT_EQ(error_of([&] { (void)allocator.allocate(1); }), ErrorCode::kOverflow);
  allocator.free(b);
  EXPECT_EQ(allocator.reserved(), 1);
  allocator.free(a);
  EXPECT_EQ(allocator.allocated(), 0);
}

// --- The free list. ---

TEST(FreeList, FindsTheBestFitAcrossAllSizes) {
  FreeList list;
  EXPECT_EQ(list.best_fit(512), FreeList::kNone);
  // Twice each size, the second at the lower address; powers of two and their neighbours up to the largest size.
  std::vector<Bytes> sizes;
  for (int bit = 10; bit < 63; ++bit) {
    for (const Bytes offset : {-512, 0, 512}) sizes.push_back((Bytes{1} << bit) + offset);
  }
  sizes.push_back(kMax / 512 * 512);
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  FreeList::Handle next = 1;
  for (const Bytes size : sizes) {
    list.insert(next++, size, 1024);
    list.insert(next++, size, -1024);
  }
  EXPECT_EQ(list.blocks().size(), 2 * sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto low = static_cast<FreeList::Handle>(2 * i + 2);
    EXPECT_EQ(list.best_fit(i == 0 ? 512 : sizes[i - 1] + 512), low) << sizes[i];
    list.remove(low);
    EXPECT_EQ(list.best_fit(sizes[i]), low - 1) << sizes[i];
    list.insert(low, sizes[i], -1024);
  }
  for (FreeList::Handle block = 1; block < next; ++block) list.remove(block);
  EXPECT_EQ(list.best_fit(512), FreeList::kNone);
}

TEST(FreeList, ALongRingKeepsItsOrder) {
  // 2,000 blocks of four sizes of one bucket, put in by a stride that visits all: long walks, so the ring is indexed.
  constexpr FreeList::Handle kBlocks = 2000;
  const auto size_of = [](FreeList::Handle block) { return 4 * kMiB + (block % 4) * 512; };
  const auto address_of = [](FreeList::Handle block) { return block * 8 * kMiB; };
  FreeList list;
  for (FreeList::Handle i = 0; i < kBlocks; ++i) {
    const FreeList::Handle block = 1 + i * 1237 % kBlocks;
    list.insert(block, size_of(block), address_of(block));
  }
  for (FreeList::Handle block = 4; block <= kBlocks; block += 8)
    list.update(block, size_of(block) + 2048, -Bytes{block});
  for (FreeList::Handle block = 1; block <= kBlocks; block += 3) list.remove(block);
  std::vector<std::tuple<Bytes, Bytes, FreeList::Handle>> expected;
  for (FreeList::Handle block = 1; block <= kBlocks; ++block) {
    if (block % 3 == 1) continue;
    const bool moved = block % 8 == 4;
    expected.emplace_back(size_of(block) + (moved ? 2048 : 0), moved ? -Bytes{block} : address_of(block), block);
  }
  std::sort(expected.begin(), expected.end());
  for (const Bytes wanted : {4 * kMiB + 512, 4 * kMiB + 1024, 4 * kMiB + 1536, 4 * kMiB + 2048}) {
    const auto best = std::lower_bound(expected.begin(), expected.end(), std::tuple(wanted, Bytes{-1} << 40, 0U));
    EXPECT_EQ(list.best_fit(wanted), std::get<2>(*best)) << wanted;
  }
  for (const auto& [size, address, block] : expected) {
    ASSERT_EQ(list.best_fit(512), block);
    list.remove(block);
  }
  EXPECT_EQ(list.best_fit(512), FreeList::kNone);
}

TEST(FreeList, AnUpdatedBlockMovesToItsPlace) {
  FreeList list;
  list.insert(1, 4 * kMiB, 0);
  list.insert(2, 4 * kMiB + 512, 16 * kMiB);
  list.insert(3, 4 * kMiB + 1024, 32 * kMiB);
  EXPECT_EQ(list.best_fit(4 * kMiB), 1U);
  list.update(1, 4 * kMiB + 2048, 0);
  EXPECT_EQ(list.best_fit(4 * kMiB), 2U);
  EXPECT_EQ(list.best_fit(4 * kMiB + 1024), 3U);
  list.update(3, 512, 32 * kMiB);
  EXPECT_EQ(list.best_fit(4 * kMiB + 1024), 1U);
  EXPECT_EQ(list.best_fit(512), 3U);
  EXPECT_THAT(list.blocks(), UnorderedElementsAre(1, 2, 3));
}

// --- A card that runs full: free segments go back, then the request is made again. ---

TEST(FullCard, FreeSegmentsMakeRoom) {
  CachingAllocator allocator({}, 100 * kMiB);
  const auto first = allocator.allocate(60 * kMiB);  // 60
  (void)allocator.allocate(20 * kMiB);               // 80
  allocator.free(first);
  EXPECT_EQ(allocator.reserved(), 80 * kMiB);
  (void)allocator.allocate(70 * kMiB);  // 80 + 70 > 100; without the free 60: 20 + 70
  EXPECT_EQ(allocator.reserved(), 90 * kMiB);
  EXPECT_EQ(allocator.retries(), 1);
  EXPECT_FALSE(allocator.out_of_memory());
}

TEST(FullCard, WhereTheyDoNotTheRunEnds) {
  CachingAllocator allocator({}, 100 * kMiB);
  (void)allocator.allocate(60 * kMiB);
  (void)allocator.allocate(40 * kMiB);  // 100: exactly full
  EXPECT_EQ(allocator.retries(), 0);
  (void)allocator.allocate(1);  // a segment of 2 MiB
  EXPECT_EQ(allocator.retries(), 1);
  EXPECT_TRUE(allocator.out_of_memory());
  EXPECT_EQ(allocator.reserved(), 102 * kMiB);  // as if there had been room
}

// A segment that is in use by as little as one small block stays.
TEST(FullCard, PartlyUsedSegmentsStay) {
  CachingAllocator allocator({}, 40 * kMiB);
  const auto first = allocator.allocate(5 * kMiB);  // of 20 MiB
  (void)allocator.allocate(5 * kMiB);               // of the same
  allocator.free(first);
  (void)allocator.allocate(30 * kMiB);
  EXPECT_TRUE(allocator.out_of_memory());
}

}  // namespace
}  // namespace memcalc
