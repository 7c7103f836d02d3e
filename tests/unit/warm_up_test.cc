// alloc/warm_up: the request that from_pretrained makes before it reads weights.
#include "memcalc/alloc/warm_up.h"

#include <gtest/gtest.h>

namespace memcalc {
namespace {

constexpr Bytes kGiB = Bytes{1} << 30U;

TEST(WarmUp, AsksForWhatIsNotThereYet) {
  EXPECT_EQ(warm_up_bytes(6 * kGiB, 0), 6 * kGiB);
  EXPECT_EQ(warm_up_bytes(6 * kGiB, kGiB), 5 * kGiB);
}

TEST(WarmUp, WhereMuchIsUnusedItAsksForJustMoreThanThatOrNothing) {
  EXPECT_EQ(warm_up_bytes(6 * kGiB, 4 * kGiB), 4 * kGiB + 1);
  EXPECT_EQ(warm_up_bytes(5 * kGiB, 4 * kGiB), 0);
  EXPECT_EQ(warm_up_bytes(kGiB, 2 * kGiB), 0);
}

TEST(WarmUp, TheTracesRequestShrinksByWhatTheAllocatorHasLeft) {
  constexpr Operator kOp{"test"};
  Trace trace;
  for (const Bytes requested : {200 * kGiB / 1024, 3 * kGiB}) {
    const auto block = static_cast<BlockId>(trace.blocks.size());
    trace.blocks.push_back({.requested = requested});
    trace.events.push_back({.op = &kOp, .block = block, .kind = EventKind::kAllocate});
    trace.events.push_back({.op = &kOp, .block = block, .kind = EventKind::kFree});
  }
  settle_warm_up(trace, 1, {});
  EXPECT_EQ(trace.blocks[1].requested, 3 * kGiB - 200 * kGiB / 1024);
  EXPECT_EQ(trace.blocks[0].requested, 200 * kGiB / 1024);
}

}  // namespace
}  // namespace memcalc
