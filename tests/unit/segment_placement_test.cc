// Where segments go: docs/allocator.md, "Where a segment goes".
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "memcalc/alloc/segment_placement.h"
#include "memcalc/base/error.h"
#include "support/h100_placement.h"

namespace memcalc {
namespace {

TEST(SegmentPlacer, PlainChunksDescendInStepsOf32MiB) {
  SegmentPlacer placer;
  EXPECT_EQ(placer.place(120 * kMiB), -128 * kMiB);  // a chunk of 128; 8 MiB are left at -8
  EXPECT_EQ(placer.place(20 * kMiB), -160 * kMiB);   // 12 are left at -140
  EXPECT_EQ(placer.place(10 * kMiB), -140 * kMiB);   // the smaller fragment does not hold it; 2 are left at -130
  EXPECT_EQ(placer.place(2 * kMiB), -130 * kMiB);    // the smallest fragment that holds it
  EXPECT_EQ(placer.place(2 * kMiB), -8 * kMiB);
  EXPECT_EQ(placer.place(32 * kMiB), -192 * kMiB);
}

// The first segments of three logged runs, up to where other libraries take chunks of their own.
TEST(SegmentPlacer, FollowsTheLogsOfTheH100) {
  struct Step {
    Bytes mebibytes;  // negative: the segment at this address is given back
    Bytes address;
  };
  const std::vector<std::vector<Step>> logs = {
      // bert-large-2l-fp32
      {{2, -422}, {120, -128}, {20, 74}, {16, 8768}, {16, 8784}, {20, -160}, {16, -192}, {16, -176}, {20, -224}},
      // llama-3.2-1b-2l-bf16: 512 MiB do not fit above the context's span, what follows does
      {{2, -422},
       {502, -1440},
       {20, 74},
       {32, 8768},
       {32, -32},
       {32, -64},
       {20, -96},
       {32, -128},
       {502, -1952},
       {-502, -1952},
       {20, -160}},
      // t5-base-2l-fp32: chunks that are given back are taken again from above
      {{2, -422},
       {96, -96},
       {96, -192},
       {20, 74},
       {20, 8768},
       {20, -224},
       {96, -320},
       {20, -352},
       {20, -384},
       {20, -960},
       {20, -992},
       {96, -1088},
       {-96, -1088},
       {-96, -320},
       {-96, -192},
       {20, -128},
       {20, -160}}};
  for (const std::vector<Step>& log : logs) {
    SegmentPlacer placer(measured::h100_placement());
    for (const Step& step : log) {
      if (step.mebibytes < 0) {
        placer.give_back(step.address * kMiB, -step.mebibytes * kMiB);
      } else {
        EXPECT_EQ(placer.place(step.mebibytes * kMiB), step.address * kMiB);
      }
    }
  }
}

TEST(SegmentPlacer, FragmentsJoinWithinTheirChunkAndWholeChunksWithEachOther) {
  SegmentPlacer placer;
  const Bytes low = placer.place(12 * kMiB);   // -32 … -20
  const Bytes high = placer.place(18 * kMiB);  // -20 … -2, 2 left
  const Bytes next = placer.place(20 * kMiB);  // -64 … -44, 12 left
  EXPECT_EQ(low, -32 * kMiB);
  EXPECT_EQ(high, -20 * kMiB);
  placer.give_back(high, 18 * kMiB);  // 18 + 2 = 20 free at -20
  EXPECT_EQ(placer.place(20 * kMiB), -20 * kMiB);
  placer.give_back(high, 20 * kMiB);
  placer.give_back(low, 12 * kMiB);   // the chunk at -32 is whole again …
  placer.give_back(next, 20 * kMiB);  // … and so is the one at -64: a hole of 64 MiB up to 0
  EXPECT_EQ(placer.place(64 * kMiB), -64 * kMiB);
}

TEST(SegmentPlacer, LoggedAddressesComeInOrderAndEnd) {
  const std::vector<Bytes> log = {7, 3};
  SegmentPlacer placer = SegmentPlacer::from_log(log);
  EXPECT_EQ(placer.place(2 * kMiB), 7);
  placer.give_back(7, 2 * kMiB);
  EXPECT_EQ(placer.place(2 * kMiB), 3);
  EXPECT_THROW((void)placer.place(2 * kMiB), Error);
}

TEST(SegmentPlacer, AddressesDoNotOverflow) {
  constexpr Bytes kHalf = Bytes{1} << 62;
  SegmentPlacer placer;
  EXPECT_EQ(placer.place(kHalf), -kHalf);
  EXPECT_THROW((void)placer.place(kHalf), Error);  // -2^63 itself is out of reach
  EXPECT_THROW((void)placer.place(std::numeric_limits<Bytes>::max()), Error);
  EXPECT_EQ(placer.place(kHalf - 32 * kMiB), -2 * (kHalf - 16 * kMiB));
}

}  // namespace
}  // namespace memcalc
