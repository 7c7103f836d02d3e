// cost/timeline.h: collectives and copies on streams beside the compute stream, on kernels whose times are plain
// numbers.
#include <gtest/gtest.h>

#include "memcalc/cost/cost.h"
#include "memcalc/symbolic/kernel_list.h"
#include "support/plain_rates.h"

namespace memcalc {
namespace {

using test::device;
using test::kernel;
using test::rates;

double seconds_of(const StepTime& time, TimeClass time_class) {
  return time.by_class.at(static_cast<std::size_t>(time_class));
}

/// Of 2 ranks: half of the bytes crosses 1e11 B/s.
Kernel collective(Collective kind, double seconds, std::int64_t awaited_after = 0) {
  Kernel result = kernel(0, Phase::kBackward);
  result.stream = kind == Collective::kAllGather ? CudaStream::kAllGather : CudaStream::kReduceScatter;
  result.work = work::Communication{.kind = kind, .bytes = 2e11 * seconds, .ranks = 2, .awaited_after = awaited_after};
  return result;
}

/// Ten kernels of a millisecond, the first of which comes before `beside`, and the optimizer's.
KernelList with_ten(const Kernel& beside) {
  KernelList list;
  list.push_back(kernel(1e9, Phase::kBackward));
  list.push_back(beside);
  for (int i = 0; i < 9; ++i) list.push_back(kernel(1e9, Phase::kBackward));
  list.push_back(kernel(1e6, Phase::kOptimizer));
  return list;
}

double step_of(const KernelList& list, const DeviceRates& of = rates()) {
  return cost(list, device(), of).step_seconds;
}

// FSDP gathers a layer ahead in backward, and the compute stream waits where it needs it. The host is a step ahead, so
// that what is gathered begins with the step, a millisecond before what comes behind it.
TEST(Streams, WhatIsGatheredAheadIsHidden) {
  const double alone = step_of(with_ten(kernel(0, Phase::kBackward)));
  EXPECT_NEAR(step_of(with_ten(collective(Collective::kAllGather, 4e-3))), alone + 3e-3, 0.1e-3) << "the next waits";
  EXPECT_NEAR(step_of(with_ten(collective(Collective::kAllGather, 4e-3, 6))), alone, 0.1e-3);
  EXPECT_NEAR(step_of(with_ten(collective(Collective::kAllGather, 9e-3, 6))), alone + 3e-3, 0.1e-3)
      << "six milliseconds of it are";
}

// FSDP2 waits for the reduction before, when it has gradients to copy for the next.
TEST(Streams, AReductionMayBeAwaitedBeforeTheOptimizer) {
  const double alone = step_of(with_ten(kernel(0, Phase::kBackward)));
  EXPECT_NEAR(step_of(with_ten(collective(Collective::kReduceScatter, 5e-3))), alone, 0.1e-3);
  EXPECT_NEAR(step_of(with_ten(collective(Collective::kReduceScatter, 5e-3, 4))), alone + 2e-3, 0.1e-3);
}

TEST(Streams, AKernelOfAnotherStreamTakesTheMultiprocessorsAndACopyOverTheBusDoesNot) {
  const double alone = step_of(with_ten(kernel(0, Phase::kBackward)));
  Kernel copied = kernel(2e9, Phase::kBackward);
  copied.stream = CudaStream::kAllGatherCopyIn;
  EXPECT_NEAR(step_of(with_ten(copied)), alone + 2e-3, 0.1e-3);
  DeviceRates bus = rates();
  bus.transfer = {.latency_us = 1, .pinned_bytes_per_second = 1e12, .pageable_bytes_per_second = 1e12};
  copied.kind = KernelKind::kCopyToHost;
  copied.work = work::HostCopy{.pinned = true};
  EXPECT_NEAR(step_of(with_ten(copied), bus), alone, 0.1e-3);
}

TEST(Streams, ACollectiveTakesLongerBesideKernels) {
  DeviceRates slower = rates();
  slower.link.collective_contention = 0.5;
  const KernelList list = with_ten(collective(Collective::kReduceScatter, 12e-3));
  const double alone = step_of(with_ten(kernel(0, Phase::kBackward)));
  EXPECT_NEAR(step_of(list), alone + 3e-3, 0.1e-3) << "from the first kernel's end on";
  // Nine milliseconds of kernels hide six of it, and the rest has nothing beside it.
  EXPECT_NEAR(step_of(list, slower), alone + 6e-3, 0.1e-3);
}

// What sums also reads and writes the memory: kernels that memory bounds hold up an all-reduce, not a gather.
TEST(Streams, AnAllReduceTakesLongerBesideWhatMemoryBounds) {
  DeviceRates slower = rates();
  slower.link.collective_contention = slower.link.all_reduce_contention = 0.5;
  const KernelList gathers = with_ten(collective(Collective::kAllGather, 12e-3, 10));
  EXPECT_NEAR(step_of(gathers, slower), step_of(gathers), 1e-9);
  slower.link.collective_contention = 0;
  const KernelList sums = with_ten(collective(Collective::kAllReduce, 6e-3));  // goes round twice
  EXPECT_NEAR(step_of(sums, slower), step_of(sums) + 4.5e-3, 0.1e-3) << "half of nine milliseconds";
}

// The list of the optimizer has run, whatever comes beside the gather that it held up.
TEST(Streams, AGatherDoesNotSlowTheOptimizerBeforeIt) {
  DeviceRates shared = rates();
  shared.link.memory_contention = 0.2;
  KernelList list;
  list.push_back(collective(Collective::kAllGather, 2e-3));
  list.back().phase = Phase::kForward;
  list.push_back(kernel(1e9));
  list.push_back(kernel(20e9, Phase::kOptimizer));
  EXPECT_NEAR(step_of(list, shared), step_of(list), 1e-9);
}

// The host issues it while the card is far behind: it runs beside the first kernels, not beside those behind it.
TEST(Streams, AGatherThatIsIssuedAheadSlowsWhatItRunsBeside) {
  DeviceRates shared = rates();
  shared.link.memory_contention = 0.2;
  KernelList list;
  for (int i = 0; i < 20; ++i) list.push_back(kernel(1e9));
  list.push_back(collective(Collective::kAllGather, 5e-3));
  list.push_back(kernel(1e9));
  list.push_back(kernel(1e6, Phase::kOptimizer));
  EXPECT_NEAR(seconds_of(cost(list, device(), shared), TimeClass::kCommunication), 5e-3 - 5e-3 / 1.2, 0.2e-3);
}

// The host waits for the step before, so that a kernel runs when it issues what gathers.
TEST(Streams, ACollectiveBeginsWhenTheKernelEndsThatRuns) {
  KernelList list;
  list.push_back(kernel(0));
  list.back().kind = KernelKind::kSynchronize;
  list.back().work = work::Wait{};
  for (const Kernel& each : with_ten(collective(Collective::kAllGather, 1e-3, 1))) list.push_back(each);
  list[1] = kernel(5e9, Phase::kBackward);
  EXPECT_NEAR(seconds_of(cost(list, device(), rates()), TimeClass::kCommunication), 1e-3, 0.1e-3);
}

}  // namespace
}  // namespace memcalc
