#include "memcalc/symbolic/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "memcalc/base/error.h"

namespace memcalc {
namespace {

constexpr Operator kEmpty{"aten::empty"}, kMm{"aten::mm"}, kNode{"MmBackward0"};

class MemoryTest : public testing::Test {
 protected:
  /// Bytes of each request, negative for a free; 0 for what moves no block.
  [[nodiscard]] std::vector<Bytes> requests() const {
    std::vector<Bytes> result;
    for (const Event& event : memory_.trace.events) {
      if (!event.moves_block()) {
        result.push_back(0);
        continue;
      }
      const Bytes bytes = memory_.trace.blocks[static_cast<std::size_t>(event.block)].requested;
      result.push_back(event.kind == EventKind::kFree ? -bytes : bytes);
    }
    return result;
  }
  [[nodiscard]] const Block& block(BlockId id) const { return memory_.trace.blocks[static_cast<std::size_t>(id)]; }

  Moment moment_;
  Memory memory_{{.cublas = 1000, .cublaslt = 200}, moment_};
};

TEST_F(MemoryTest, ABlockIsFreedWhenItsLastOwnerLetsItGo) {
  const BlockId first = memory_.allocate(100, kEmpty);
  EXPECT_TRUE(memory_.has_one_owner(first));
  memory_.hold(first);
  EXPECT_FALSE(memory_.has_one_owner(first));
  memory_.release(first);
  EXPECT_TRUE(memory_.is_held(first));
  memory_.release(first);
  EXPECT_FALSE(memory_.is_held(first));
  EXPECT_EQ(requests(), (std::vector<Bytes>{100, -100}));
}

TEST_F(MemoryTest, ARequestIsStampedWithTheMomentAtWhichItIsMade) {
  moment_.phase = Phase::kBackward;
  moment_.step = 1;
  moment_.node = &kNode;
  moment_.stream = CudaStream::kAllGather;
  const BlockId id = memory_.allocate(100, kMm);
  const Event& event = memory_.trace.events.back();
  EXPECT_EQ(event.op, &kMm);
  EXPECT_EQ(event.node, &kNode);
  EXPECT_EQ(event.phase, Phase::kBackward);
  EXPECT_EQ(event.step, 1);
  EXPECT_EQ(block(id).stream, CudaStream::kAllGather);
}

TEST_F(MemoryTest, OnlyATemporaryBecomesAnActivationOnceItIsSaved) {
  const BlockId temporary = memory_.allocate(100, kEmpty);
  const BlockId weight = memory_.allocate(100, kEmpty, Category::kWeights);
  memory_.mark_saved(temporary);
  memory_.mark_saved(weight);
  memory_.mark_saved(kNoBlock);
  EXPECT_EQ(block(temporary).category, Category::kActivations);
  EXPECT_EQ(block(weight).category, Category::kWeights);
  memory_.set_category(temporary, Category::kGradients);
  EXPECT_EQ(block(temporary).category, Category::kGradients);
}

TEST_F(MemoryTest, OfAPlaceholderOnlyTheFreeIsAnEvent) {
  memory_.release(memory_.placeholder());
  ASSERT_EQ(memory_.trace.events.size(), 1U);
  EXPECT_EQ(memory_.trace.events.front().kind, EventKind::kFree);
}

TEST_F(MemoryTest, AResizableStorageIsFilledAndEmptiedUnderItsTensors) {
  const BlockId storage = memory_.resizable_storage();
  const BlockId other = memory_.resizable_storage();
  memory_.fill_storage(storage, 100, kEmpty, Category::kGatheredWeights);
  memory_.fill_storage(other, 300, kEmpty, Category::kGatheredWeights);
  const BlockId freed = memory_.empty_storage(storage);
  EXPECT_EQ(block(freed).requested, 100);
  EXPECT_EQ(requests(), (std::vector<Bytes>{100, 300, -100}));
  EXPECT_THROW((void)memory_.empty_storage(storage), Error) << "it is empty";
  EXPECT_THROW((void)memory_.empty_storage(freed), Error) << "a plain block cannot be resized";
}

TEST_F(MemoryTest, ScratchMemoryIsRequestedAndReturnedAtOnce) {
  memory_.scratch(64, kMm, Category::kWorkspaces);
  memory_.scratch(0, kMm);
  EXPECT_EQ(requests(), (std::vector<Bytes>{64, -64}));
  EXPECT_EQ(block(0).category, Category::kWorkspaces);
}

TEST_F(MemoryTest, EachThreadTakesItsWorkspacesOfCublasOnce) {
  moment_.phase = Phase::kForward;
  memory_.use_cublas(false);
  memory_.use_cublas(true);
  memory_.use_cublas(true);
  EXPECT_EQ(requests(), (std::vector<Bytes>{1000, 200}));
  moment_.phase = Phase::kBackward;
  memory_.use_cublas(false);
  EXPECT_EQ(requests(), (std::vector<Bytes>{1000, 200, 1000}));
}

TEST_F(MemoryTest, AutogradsThreadTakesOverTheHandleOfAForwardThreadThatEnded) {
  moment_.phase = Phase::kForward;
  memory_.use_cublas(false);
  memory_.forward_thread_ended();
  moment_.phase = Phase::kBackward;
  memory_.use_cublas(false);
  EXPECT_EQ(requests(), (std::vector<Bytes>{1000}));
  moment_.phase = Phase::kForward;
  memory_.use_cublas(false);
  EXPECT_EQ(requests(), (std::vector<Bytes>{1000, 1000}));
}

TEST_F(MemoryTest, ABlockThatOtherStreamsUseComesBackOnceTheyAreDone) {
  const BlockId id = memory_.allocate(100, kEmpty);
  memory_.record_stream(id);
  memory_.release(id);
  memory_.streams_done(id);
  EXPECT_TRUE(block(id).waits_for_streams);
  EXPECT_EQ(memory_.trace.events.back().kind, EventKind::kReturn);
}

TEST_F(MemoryTest, UnrecordedRequestsAreNoEventsAndTellTheMeterOfScratchMemory) {
  struct Meter final : ScratchMeter {
    void scratch(Bytes bytes) override { most = std::max(most, bytes); }
    Bytes most = 0;
  } meter;
  {
    const UnrecordedRequests unrecorded(memory_, meter);
    memory_.release(memory_.allocate(100, kEmpty));
    memory_.scratch(64, kMm);
    memory_.use_cublas(true);
  }
  EXPECT_TRUE(memory_.trace.events.empty());
  EXPECT_EQ(meter.most, 64);
  memory_.scratch(32, kMm);
  EXPECT_EQ(memory_.trace.events.size(), 2U) << "the scope has ended";
}

TEST_F(MemoryTest, OnTheMetaDeviceNothingIsRequested) {
  {
    const OnMetaDevice on_meta(memory_);
    EXPECT_EQ(memory_.allocate(100, kEmpty), kNoBlock);
    memory_.scratch(64, kMm);
    const OnMetaDevice on_card(memory_, false);
    EXPECT_NE(memory_.allocate(8, kEmpty), kNoBlock);
  }
  EXPECT_NE(memory_.allocate(200, kEmpty), kNoBlock);
  EXPECT_EQ(requests(), (std::vector<Bytes>{8, 200}));
}

TEST_F(MemoryTest, WhatDiesAfterTheRunHasStoppedIsNoEvent) {
  const BlockId id = memory_.allocate(100, kEmpty);
  memory_.stop();
  memory_.release(id);
  EXPECT_EQ(requests(), (std::vector<Bytes>{100}));
}

TEST_F(MemoryTest, ACopyOnTheHostTakesAPowerOfTwoOfPinnedMemory) {
  memory_.count_host_copy(1000);
  memory_.count_host_copy(1024);
  EXPECT_EQ(memory_.host_copies.count, 2);
  EXPECT_EQ(memory_.host_copies.bytes, 2024);
  EXPECT_EQ(memory_.host_copies.pinned_bytes, 2048);
}

}  // namespace
}  // namespace memcalc
