// cost/cost.h: the host's queue, synchronisation and repeated micro-batches on kernels whose times are plain numbers,
// and the models of single kernels where they can be worked out by hand.
#include <gtest/gtest.h>

#include "memcalc/cost/collective.h"
#include "memcalc/cost/cost.h"
#include "memcalc/cost/kernel_time.h"

namespace memcalc {
namespace {

constexpr Operator kOp{"aten::add"};

// 1 TB/s, 1 TFLOP/s: a kernel of 1 MB takes 1 us.
DeviceSpec device() {
  DeviceSpec device;
  device.multiprocessors = 100;
  device.memory_bandwidth_bytes_per_second = 1e12;
  device.fp32_flops_per_second = 1e15;
  device.bf16_flops_per_second = 1e15;
  device.link_bytes_per_second = 1e11;
  return device;
}

// No launch time, the whole of the datasheet, a host that takes 10 us for an operator.
DeviceRates rates() {
  DeviceRates rates;
  rates.vectorized = {.launch_us = 0, .bandwidth = 1, .elements = 1};
  rates.host = {.pointwise_us = 10,
                .normalization_us = 10,
                .image_us = 10,
                .product_us = 10,
                .attention_us = 10,
                .convolution_us = 10,
                .view_us = 1,
                .python_us = 0,
                .forward_us = 0,
                .node_us = 2,
                .backward_us = 0,
                .tensor_us = 0,
                .queue_kernels = 1024,
                .gap_us = 0,
                .launch_latency_us = 0};
  rates.link = {.start_us = 0, .hop_us = 0, .bandwidth = 1, .network_us = 0, .network_bandwidth = 1};
  return rates;
}

Kernel kernel(double bytes, Phase phase = Phase::kForward) {
  Kernel kernel;
  kernel.op = &kOp;
  kernel.phase = phase;
  kernel.bytes = bytes;
  return kernel;
}

KernelList repeated(int count, double bytes) {
  KernelList list;
  for (int i = 0; i < count; ++i) list.push_back(kernel(bytes));
  return list;
}

double seconds_of(const StepTime& time, TimeClass time_class) {
  return time.by_class.at(static_cast<std::size_t>(time_class));
}

TEST(Cost, TheCardWaitsForTheHost) {
  const StepTime time = cost(repeated(50, 1e6), device(), rates());
  EXPECT_NEAR(time.step_seconds, 50 * 10e-6, 1e-9);
  EXPECT_NEAR(seconds_of(time, TimeClass::kElementwise), 50 * 1e-6, 1e-9);
  EXPECT_NEAR(seconds_of(time, TimeClass::kHost), 50 * 9e-6, 1e-9);
  EXPECT_TRUE(time.host_bound());
}

TEST(Cost, TheHostRunsAhead) {
  const StepTime time = cost(repeated(50, 1e9), device(), rates());
  EXPECT_NEAR(time.step_seconds, 50 * 1e-3, 1e-9);
  EXPECT_NEAR(time.host_seconds, 50 * 10e-6, 1e-12);
  EXPECT_FALSE(time.host_bound());
}

TEST(Cost, AfterASynchronizationTheQueueIsEmpty) {
  KernelList list = repeated(10, 1e9);
  Kernel wait = kernel(0);
  wait.kind = KernelKind::kSynchronize;
  list.push_back(wait);
  // The card idles while the host issues the first kernel after it: 10 us for .item() itself, 10 us for the kernel.
  const StepTime time = cost(list, device(), rates());
  EXPECT_NEAR(time.step_seconds, 10 * 1e-3 + 10e-6, 1e-9);
}

TEST(Cost, ViewsAndNodesCostTheHost) {
  Kernel viewed = kernel(0, Phase::kBackward);
  viewed.views = 3;
  viewed.nodes = 4;
  EXPECT_NEAR(host_seconds(viewed, rates().host), (10 + 3 * 1 + 4 * 2) * 1e-6, 1e-12);
}

TEST(Cost, AMicroBatchStandsForOthers) {
  KernelList list = repeated(10, 1e9);
  for (Kernel& each : list) each.repeats = 5;
  EXPECT_NEAR(cost(list, device(), rates()).step_seconds, 5 * 10 * 1e-3, 1e-9);
}

// A full queue lets the host catch up with the card within the micro-batch that stands for others; they do not wait so.
TEST(Cost, AMicroBatchThatWaitsForTheQueueStandsForOthersThatDoNot) {
  DeviceRates few = rates();
  few.host.queue_kernels = 15;
  const auto step_with = [&](std::int64_t executed, std::int64_t repeats) {
    KernelList list = repeated(10, 1e10);  // 10 ms each
    for (std::int64_t i = 0; i < executed * 20; ++i) {
      list.push_back(kernel(1e3));
      list.back().repeats = repeats;
    }
    list.push_back(kernel(1e6));
    return cost(list, device(), few).step_seconds;
  };
  EXPECT_NEAR(step_with(1, 20), step_with(20, 1), 0.05 * step_with(20, 1));
}

TEST(Cost, WhatIsReducedIsHiddenAndWhatIsGatheredIsNot) {
  Kernel reduced = kernel(0, Phase::kBackward);
  reduced.collective = Collective::kReduceScatter;
  reduced.stream = CudaStream::kReduceScatter;
  reduced.collective_bytes = 4e7;  // of 2 ranks: half crosses 1e11 B/s in 0.2 ms
  reduced.group_size = 2;
  KernelList list;
  list.push_back(reduced);
  for (int i = 0; i < 10; ++i) list.push_back(kernel(1e9, Phase::kBackward));
  list.push_back(kernel(1e6, Phase::kOptimizer));
  EXPECT_NEAR(cost(list, device(), rates()).step_seconds, 10e-3 + 1e-6, 1e-8);
  list[0].collective = Collective::kAllGather;
  list[0].stream = CudaStream::kAllGather;
  list[0].collective_bytes = 4e11;  // 2 s: longer than what runs before it
  EXPECT_GT(seconds_of(cost(list, device(), rates()), TimeClass::kCommunication), 1.9);
}

TEST(Cost, ClassesSumToTheStep) {
  KernelList list = repeated(20, 3e7);
  list[3].operator_class = OperatorClass::kNormalization;
  list[7].phase = Phase::kOptimizer;
  const StepTime time = cost(list, device(), rates());
  double sum = 0;
  for (const double each : time.by_class) sum += each;
  EXPECT_NEAR(sum, time.step_seconds, 1e-12);
  EXPECT_NEAR(time.forward_seconds + time.backward_seconds + time.optimizer_seconds, time.step_seconds, 1e-12);
}

TEST(Collectives, RingsByHand) {
  Kernel all_reduce = kernel(0);
  all_reduce.collective = Collective::kAllReduce;
  all_reduce.collective_bytes = 1e9;
  all_reduce.group_size = 4;
  // 2 (n - 1) / n of 1 GB over 100 GB/s: 15 ms.
  EXPECT_NEAR(collective_seconds(all_reduce, device(), rates().link), 15e-3, 1e-9);
  all_reduce.collective = Collective::kAllGather;
  EXPECT_NEAR(collective_seconds(all_reduce, device(), rates().link), 7.5e-3, 1e-9);
  all_reduce.group_size = 1;
  EXPECT_EQ(collective_seconds(all_reduce, device(), rates().link), 0);
}

// 256 x 128 tiles without prologue: one wave of 100 tiles of 2 * 256 * 128 * 4096 FLOPs each on 1/100 of 1 PFLOP/s.
TEST(Products, OneWaveByHand) {
  Kernel product = kernel(0);
  product.kind = KernelKind::kMatrixProduct;
  product.dtype = DType::kBFloat16;
  product.m = 2560;
  product.n = 1280;
  product.k = 4096;
  product.batch = 1;
  ProductRates r;
  r.launch_us = 0;
  r.tile_us = 1e-9;
  r.ragged = 1;
  r.narrow = 1;  // no smaller tile pays
  EXPECT_NEAR(product_seconds(product, device(), r), 2.0 * 256 * 128 * 4096 / 1e13, 1e-9);
  product.m += 1;  // a second wave for one row of tiles
  EXPECT_GT(product_seconds(product, device(), r), 1.3 * 2.0 * 256 * 128 * 4096 / 1e13);
}

TEST(Products, OddRowsLoseTheTensorMemoryAccelerator) {
  Kernel product = kernel(0);
  product.kind = KernelKind::kMatrixProduct;
  product.dtype = DType::kBFloat16;
  product.m = 8192;
  product.n = 50304;
  product.k = 768;
  product.transposed = Transposed::kSecond;
  ProductRates r;
  r.misaligned = 0.1;
  r.half_misaligned = 0.3;
  const double aligned = product_seconds(product, device(), r);
  product.n = 50257;  // GPT-2's vocabulary
  EXPECT_GT(product_seconds(product, device(), r), 5 * aligned);
  product.n = 30522;  // BERT's
  EXPECT_LT(product_seconds(product, device(), r), 4 * aligned);
}

}  // namespace
}  // namespace memcalc
