// train/gather: what accelerate's gather() asks for on one of several processes.
#include "memcalc/train/gather.h"

#include <gtest/gtest.h>

#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {
namespace {

const DeviceSpec kDevice;

/// The sizes that `run` asks for, in order.
template <typename Run>
std::vector<Bytes> requests(Tape& tape, Run run) {
  const std::size_t before = tape.memory.trace.events.size();
  run();
  std::vector<Bytes> sizes;
  for (std::size_t i = before; i < tape.memory.trace.events.size(); ++i) {
    const Event& event = tape.memory.trace.events[i];
    if (event.kind == EventKind::kAllocate) {
      sizes.push_back(tape.memory.trace.blocks[static_cast<std::size_t>(event.block)].requested);
    }
  }
  return sizes;
}

TEST(Gather, OneProcessGetsItsOwnTensor) {
  Tape tape(kDevice);
  const Tensor x = tape.empty({4, 10}, DType::kFloat32, aten::kEmpty);
  EXPECT_EQ(gathered(x).block(), x.block());
  EXPECT_TRUE(requests(tape, [&] { compare_sizes(x); }).empty());
}

TEST(Gather, RowsOfAllProcessesStandOneBehindTheOther) {
  Tape tape(kDevice);
  tape.processes = 3;
  const Tensor x = tape.empty({4, 10}, DType::kFloat32, aten::kEmpty);
  Tensor all;
  EXPECT_EQ(requests(tape, [&] { all = gathered(x); }), (std::vector<Bytes>{3 * 4 * 10 * 4}));
  EXPECT_EQ(all.shape(), (Shape{12, 10}));
}

TEST(Gather, ANumberIsClonedAndBecomesARow) {
  Tape tape(kDevice);
  tape.processes = 2;
  const Tensor x = tape.empty({}, DType::kInt64, aten::kEmpty);
  Tensor all;
  EXPECT_EQ(requests(tape, [&] { all = gathered(x); }), (std::vector<Bytes>{8, 16}));
  EXPECT_EQ(all.shape(), Shape{2});
}

TEST(Gather, WhatIsPaddedTellsItsSizesToAll) {
  Tape tape(kDevice);
  tape.processes = 2;
  const Tensor x = tape.empty({4, 10}, DType::kFloat32, aten::kEmpty);
  EXPECT_EQ(requests(tape, [&] { compare_sizes(x); }), (std::vector<Bytes>{16, 32}));
  const Tensor labels = tape.empty({4}, DType::kInt64, aten::kEmpty);
  EXPECT_TRUE(requests(tape, [&] { compare_sizes(labels); }).empty());
}

}  // namespace
}  // namespace memcalc
