// cost/kernel_time.h, attention.h, product.h, collective.h: models of single kernels where they can be worked out by
// hand.
#include <gtest/gtest.h>

#include <cmath>

#include "memcalc/cost/collective.h"
#include "memcalc/cost/cost.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/timeline.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/vector_quantize.h"
#include "support/plain_rates.h"

namespace memcalc {
namespace {

using test::device;
using test::kernel;
using test::rates;

TEST(Attention, WithoutKeysTakesItsLaunch) {
  Kernel nothing = kernel(0);
  nothing.kind = KernelKind::kCudnnAttention;
  nothing.dtype = DType::kBFloat16;
  AttentionRates attention;
  attention.launch_us = 2;
  EXPECT_NEAR(attention_seconds(nothing, {}, device(), attention), 2e-6, 1e-12);
}

TEST(KernelTime, RowsToEightBitsAreComputedNotMoved) {
  Kernel of_rows = kernel(3 * 1e9);
  of_rows.kind = KernelKind::kVectorized;
  of_rows.dtype = DType::kFloat16;
  of_rows.elements = 1e9;
  of_rows.op = &kVectorQuantize;
  const double computed = 1e9 * 132 / (0.285e12 * device().multiprocessors);
  EXPECT_NEAR(kernel_seconds(of_rows, device(), rates()), computed, 1e-3 * computed);
}

TEST(Attention, WithABiasTakesItsOwnRates) {
  Kernel kernel_of = kernel(0);
  kernel_of.kind = KernelKind::kCudnnAttention;
  kernel_of.dtype = DType::kBFloat16;
  AttentionRates attention;
  attention.launch_us = 1e-9;
  attention.bias = 1.8;
  attention.bias_backward = 1.5;
  work::Attention shape{.heads = 32, .queries = 1024, .keys = 1024, .width = 64};
  const auto seconds = [&] { return attention_seconds(kernel_of, shape, device(), attention); };
  const double forward = seconds();
  shape.bias = true;
  EXPECT_NEAR(seconds() / forward, 1.8, 1e-6);
  shape.backward = true;
  const double backward = seconds();
  shape.bias = false;
  EXPECT_NEAR(backward / seconds(), 1.5, 1e-6);
}

TEST(Attention, CudnnComputesWholeBlocksAndEndsWithTheLongest) {
  Kernel kernel_of = kernel(0);
  kernel_of.kind = KernelKind::kCudnnAttention;
  kernel_of.dtype = DType::kBFloat16;
  AttentionRates attention;
  attention.launch_us = 1e-9;
  attention.keys = attention.head = 1e-9;  // no ramp
  attention.causal = 0;
  work::Attention shape{.heads = 100, .queries = 1024, .keys = 1024, .width = 64};
  const auto seconds = [&] { return attention_seconds(kernel_of, shape, device(), attention); };
  const double whole = seconds();  // 800 blocks: eight waves of device()'s 100 multiprocessors
  shape.keys = 1000;
  EXPECT_NEAR(seconds() / whole, 1, 1e-6) << "1000 keys are 16 blocks of 64";
  shape.keys = 1024;
  shape.causal = true;  // half, and one wave of eight longer
  EXPECT_NEAR(seconds() / whole, 0.5 * (1 + 1 / 8.0), 1e-6);
  shape.causal = false;
  shape.heads = 25;  // two waves
  const double waves = seconds();
  shape.heads = 26;  // 2.08: nine tenths of the third are lost
  EXPECT_NEAR(seconds() / waves, 26 / 25.0 * (1 + 0.9 * 0.92 / 2.08), 1e-6);
  shape.backward = true;
  const double backward = seconds();
  shape.dropout = true;
  EXPECT_NEAR(seconds() / backward, 1.17, 1e-6);
  shape.dropout = false;
  shape.width = 256;
  EXPECT_NEAR(seconds() / backward, 4 * 1.5, 1e-6);
}

// kernel_forward.h and kernel_backward.h of memory-efficient attention, on device()'s 100 multiprocessors.
TEST(Attention, MemoryEfficientKernelsComputeWholeTiles) {
  Kernel kernel_of = kernel(0);
  kernel_of.kind = KernelKind::kEfficientAttention;
  kernel_of.dtype = DType::kFloat32;
  AttentionRates attention;
  attention.launch_us = 1e-9;
  attention.passes = 0;
  work::Attention shape{.heads = 300, .queries = 64, .keys = 640, .width = 64};
  const auto seconds = [&] { return attention_seconds(kernel_of, shape, device(), attention); };
  const double three = seconds();  // blocks of a multiprocessor, at once
  const double tile = 64.0 * 64 * 2 * (64 + 64) * 100 / sustained_flops(kernel_of, device());
  EXPECT_NEAR(three, 3 * (10 + 0.3) * tile, 1e-3 * three);
  shape.keys = 600;
  EXPECT_NEAR(seconds() / three, 1, 1e-6) << "600 keys are ten tiles of 64";
  shape.keys = 640;
  shape.heads = 100;
  EXPECT_NEAR(seconds() / three, 1.7 / 3, 1e-6) << "one block leaves a multiprocessor half idle";
  shape.heads = 400;
  EXPECT_NEAR(seconds() / three, (3 + 1.7) / 3, 1e-6);
  shape.heads = 300;
  shape.width = 72;  // tiles of 128 keys; summed over 96, columns for 128; one block at a time
  EXPECT_NEAR(seconds(), 3 * (5 + 0.3) * tile * 2 * (96 + 128) / 128 / 1.35, 1e-3 * three);
  shape.width = 64;
  shape.causal = true;
  shape.queries = 640;  // 55 tiles in ten blocks of each head
  EXPECT_NEAR(seconds(), (3 * (55 + 0.3 * 10) + 1.2 * (10 + 0.3)) * tile, 1e-3 * three);
  shape.backward = true;  // two blocks at once; five products
  EXPECT_NEAR(seconds(), (3 * (55 + 0.3 * 10) + 1.2 * (10 + 0.3)) * tile * 5 / 2, 1e-3 * three);
}

// 16 ranks, 8 a host with adapters of 10 GB/s: a ring for each adapter of the group's members in a host, 80 GB/s in
// all; of every second rank 40, of groups with one member a host 10.
TEST(Collectives, BetweenHostsByHand) {
  LinkRates link = rates().link;
  link.network_bytes_per_second = 10e9;
  work::Communication gather{.kind = Collective::kAllGather, .bytes = 1e9, .ranks = 16};
  EXPECT_NEAR(collective_seconds(gather, device(), link), 1e9 * 15 / 16 / 80e9, 1e-9);
  gather.distance = 2;  // every second rank: 4 of a host's 8
  EXPECT_NEAR(collective_seconds(gather, device(), link), 1e9 * 15 / 16 / 40e9, 1e-9);
  gather.distance = 8;
  EXPECT_NEAR(collective_seconds(gather, device(), link), 1e9 * 15 / 16 / 10e9, 1e-9);
  link.network_us = 5;  // 15 times it leaves a host
  EXPECT_NEAR(collective_seconds(gather, device(), link), 1e9 * 15 / 16 / 10e9 + 15 * 5e-6, 1e-9);
  work::Communication message = gather;
  message.kind = Collective::kSend;
  message.ranks = 2;
  EXPECT_NEAR(collective_seconds(message, device(), link), 1e9 / 10e9 + 5e-6, 1e-9);
  message.distance = 1;  // neighbours
  EXPECT_NEAR(collective_seconds(message, device(), link), 1e9 / 100e9, 1e-9);
}

// Half of what each of two hosts' sixteen members sends leaves the host, by its own adapter.
TEST(Collectives, AnAllToAllBetweenHostsHasAnAdapterForEachMember) {
  LinkRates link = rates().link;
  link.network_bytes_per_second = 10e9;
  work::Communication exchange{.kind = Collective::kAllToAll, .bytes = 1e9, .ranks = 16};
  EXPECT_NEAR(collective_seconds(exchange, device(), link), 1e9 * 8 / 16 / 10e9, 1e-9);
  exchange.distance = 8;  // a member in each host
  EXPECT_NEAR(collective_seconds(exchange, device(), link), 1e9 * 15 / 16 / 10e9, 1e-9);
  exchange = {.kind = Collective::kAllToAll, .bytes = 1e9, .ranks = 8};
  EXPECT_NEAR(collective_seconds(exchange, device(), link), 1e9 * 7 / 8 / 100e9, 1e-9) << "within a host";
}

// The others wait for the card that is the slowest at its power limit: of eight it takes 1.42 standard deviations more.
TEST(Collectives, ProductsTakeTheTimeOfTheSlowestCard) {
  Kernel product;
  product.kind = KernelKind::kMatrixProduct;
  product.operator_class = OperatorClass::kContraction;
  product.dtype = DType::kBFloat16;
  product.work = work::Product{.m = 4096, .n = 4096, .k = 4096};
  Kernel gather;
  gather.work = work::Communication{.kind = Collective::kAllGather, .bytes = 1e6, .ranks = 8};
  KernelList alone, together;
  alone.push_back(product);
  together.push_back(product);
  together.push_back(gather);
  const double one = seconds_of(alone, device(), rates()).front();
  EXPECT_NEAR(seconds_of(together, device(), rates()).front() / one, 1 + 1.424 * 0.015, 2e-3);
}

// Products t, other kernels o: 2 t / x + 0.5 o = x t + o.
TEST(PowerLimit, ProductsWithoutAPauseLowerTheirClock) {
  Kernel product = kernel(6.0 * 4096 * 4096);
  product.kind = KernelKind::kMatrixProduct;
  product.operator_class = OperatorClass::kContraction;
  product.dtype = DType::kBFloat16;
  product.flops = 2.0 * 4096 * 4096 * 4096;
  product.work = work::Product{.m = 4096, .n = 4096, .k = 4096};
  KernelList list;
  list.push_back(product);
  DeviceRates limited = rates();
  const double full = seconds_of(list, device(), limited).front();
  limited.power = {.products = 2, .best = product.flops / full / 1e15, .others = 0.5, .idle = 0, .source = "a test"};
  EXPECT_NEAR(seconds_of(list, device(), limited).front() / full, std::sqrt(2.0), 1e-6);
  list.push_back(kernel(1e12 * full));  // as long as the product
  EXPECT_NEAR(seconds_of(list, device(), limited).front() / full, (std::sqrt(0.25 + 8) - 0.5) / 2, 1e-6);
  list.push_back(kernel(4e12 * full));
  EXPECT_NEAR(seconds_of(list, device(), limited).front() / full, 1, 1e-6) << "2 + 0.5 * 5 is less than 1 + 5";
  limited.power.full_clock = 1.1;  // the rates are of loops at the limit
  EXPECT_NEAR(seconds_of(list, device(), limited).front() / full, 1 / 1.1, 1e-6);
  list.resize(1);
  EXPECT_NEAR(seconds_of(list, device(), limited).front() / full, std::sqrt(2.0) / 1.1, 1e-6);
}

TEST(Collectives, WhatGathersOrScattersHasARateOfItsOwn) {
  LinkRates link = rates().link;
  link.gather_bandwidth = 0.5;
  const auto seconds = [&](Collective kind) {
    return collective_seconds({.kind = kind, .bytes = 1e9, .ranks = 4}, device(), link);
  };
  EXPECT_NEAR(seconds(Collective::kAllReduce), 2 * 0.75e9 / 100e9, 1e-9);
  EXPECT_NEAR(seconds(Collective::kAllGather), 0.75e9 / 50e9, 1e-9);
  EXPECT_NEAR(seconds(Collective::kReduceScatter), 0.75e9 / 50e9, 1e-9);
}

// What the rank has itself goes through its multiprocessors, too; small messages take the low-latency protocol.
TEST(Collectives, OwnPartsAndSmallMessages) {
  LinkRates link = rates().link;
  link.gather_own_bandwidth = 2;
  const auto gather = [&](double bytes) {
    return collective_seconds({.kind = Collective::kAllGather, .bytes = bytes, .ranks = 2}, device(), link);
  };
  EXPECT_NEAR(gather(1e9), 0.5e9 / 100e9 + 0.5e9 / 200e9, 1e-9);
  link.start_us = 20;
  link.quick_start_us = 5;
  link.quick_bandwidth = 0.25;
  EXPECT_NEAR(gather(1e6), 5e-6 + 0.5e6 / 25e9, 1e-12);
  EXPECT_NEAR(gather(1e9), 20e-6 + 0.5e9 / 100e9 + 0.5e9 / 200e9, 1e-12);
}

// Each of the ring's n - 1 steps, which an all-reduce goes round twice.
TEST(Collectives, StepsOfARingTakeTimeByKind) {
  LinkRates link = rates().link;
  link.hop_us = 5;
  link.gather_hop_us = 9;
  const auto steps = [&](Collective kind) {
    const work::Communication group{.kind = kind, .bytes = 1e6, .ranks = 8};
    return collective_seconds(group, device(), link) - collective_seconds(group, device(), rates().link);
  };
  EXPECT_NEAR(steps(Collective::kAllReduce), 14 * 5e-6, 1e-9);
  EXPECT_NEAR(steps(Collective::kAllGather), 7 * 9e-6, 1e-9);
  EXPECT_NEAR(steps(Collective::kReduceScatter), 7 * 9e-6, 1e-9);
  EXPECT_NEAR(steps(Collective::kAllToAll), 7 * 5e-6, 1e-9);
}

TEST(Collectives, RingsByHand) {
  work::Communication all_reduce{.kind = Collective::kAllReduce, .bytes = 1e9, .ranks = 4};
  // 2 (n - 1) / n of 1 GB over 100 GB/s: 15 ms.
  EXPECT_NEAR(collective_seconds(all_reduce, device(), rates().link), 15e-3, 1e-9);
  all_reduce.kind = Collective::kAllGather;
  EXPECT_NEAR(collective_seconds(all_reduce, device(), rates().link), 7.5e-3, 1e-9);
  all_reduce.ranks = 1;
  EXPECT_EQ(collective_seconds(all_reduce, device(), rates().link), 0);
}

// A million pairs of positions that share 32 rows of 16: 64 us of a sort, 0.07 and 1.26 * 0.45 ns each, and 32 columns
// of each at 0.19 T a second on 132 multiprocessors.
TEST(EmbeddingGradients, FewRowsAreCountedOneAfterTheOther) {
  Kernel gradient = kernel(0);
  DeviceSpec card = device();
  card.multiprocessors = 132;
  const double few = embedding_seconds(gradient, {.indices = 1'000'000, .width = 16, .table_rows = 32}, card, rates());
  const double one = embedding_seconds(gradient, {.indices = 1'000'000, .width = 16, .table_rows = 2}, card, rates());
  EXPECT_NEAR(one - few, 1.26e-3 * 0.55, 2e-8);
  EXPECT_NEAR(few, 64e-6 + 0.07e-3 + 1.26e-3 * 0.45 + 32e6 / 0.19e12, 3e-6);
}

// float32 rows of 1 TB/s: 10,000 of 1,000, which warps hold, take 2 passes over 40 MB; 10 of 1,000,000, too long for
// the cache, 4 in forward and of gradients 3 + 1; with 100 multiprocessors rows of 100 KB stay in the cache, 2 + 2 *
// 0.4. Rows of 4,000 lie in shared memory in backward; of 4,001 no second one begins at 16 bytes.
TEST(Softmax, LongRowsAreReadAgain) {
  const auto seconds = [](std::int64_t rows, std::int64_t length, bool backward) {
    Kernel softmax = kernel(static_cast<double>(rows * length * 4 * (backward ? 3 : 2)));
    softmax.kind = KernelKind::kRowwise;
    DeviceRates cached = rates();
    cached.softmax = cached.vectorized;
    cached.cache = {.bytes = 50e6, .read_share = 0.4, .source = ""};
    return softmax_seconds(softmax, {.count = rows, .width = length, .softmax = true, .backward = backward}, device(),
                           cached);
  };
  EXPECT_NEAR(seconds(10'000, 1'000, false), 2.5e-6 + 80e-6 / 0.96, 1e-12);
  EXPECT_NEAR(seconds(10, 1'000'000, false), 3e-6 + 160e-6 / 1.06, 1e-12);
  EXPECT_NEAR(seconds(10'000, 1'000, true), 2.5e-6 + 120e-6 / 1.08, 1e-12);
  EXPECT_NEAR(seconds(10, 1'000'000, true), 3e-6 + 160e-6 / 0.98, 1e-12);
  EXPECT_NEAR(seconds(400, 25'000, false), 3e-6 + 112e-6 / 1.06, 1e-12);
  EXPECT_NEAR(seconds(2'500, 4'000, false), 4.5e-6 + 80e-6, 1e-12);
  EXPECT_NEAR(seconds(2'500, 4'000, true), 0.8e-6 + 120e-6 / 1.03, 1e-12);
  EXPECT_NEAR(seconds(2'500, 4'001, true), 0.8e-6 + 120.03e-6 / 0.7, 1e-12);
}

// cuda/Reduce.cuh: a warp a row.
TEST(RowSum, FewRowsTakeOnesChainAndManyShortOnesAWarpEach) {
  DeviceRates of = rates();
  of.row_sum = {.launch_us = 0, .bandwidth = 1, .elements = 1};
  const auto seconds = [&](double rows, double width) {
    Kernel sum = kernel((width + 1) * rows * 4);
    sum.kind = KernelKind::kRowSum;
    sum.op = &aten::kMean;
    sum.elements = rows * width;
    return kernel_seconds(sum, device(), of);
  };
  EXPECT_NEAR(seconds(100, 4'096), 2e-6 + 4'096 * 1.62e-9, 1e-12);
  EXPECT_NEAR(seconds(200'000, 36), 2e-6 + 200'000 * 0.24 * 1.32e-9, 1e-9);
  EXPECT_NEAR(seconds(10'000, 4'096), 10'000 * 4'097 * 4e-12, 1e-9) << "memory decides";
}

// 2 ps a byte on a card of 1 TB/s, of which the memory takes 0.5: on one of 2 TB/s 0.25 + 1.5 ps, which is 0.57 TB/s;
// with twice the multiprocessors 0.25 + 0.75. A kernel at the memory's own rate is twice as fast.
TEST(MemoryScaling, ByHand) {
  const auto carried = [](double bandwidth, double bytes_per_second, double multiprocessors) {
    DeviceRates rates;
    rates.scaling = {.bytes_per_second = 1e12, .multiprocessors = 100, .share = 0.5, .source = ""};
    rates.strided.bandwidth = bandwidth;
    carry_over(rates, bytes_per_second, multiprocessors);
    return rates.strided.bandwidth;
  };
  EXPECT_NEAR(carried(0.5, 2e12, 100), 1 / (1.75e-12 * 2e12), 1e-9);
  EXPECT_NEAR(carried(0.5, 2e12, 200), 0.5, 1e-9);
  EXPECT_NEAR(carried(2, 2e12, 100), 2, 1e-9);
  EXPECT_NEAR(carried(0.5, 0.5e12, 100), 1 / (2.5e-12 * 0.5e12), 1e-9) << "slower memory alone: 1 + 1.5 ps";
  EXPECT_EQ(carried(0.5, 0.5e12, 50), 0.5) << "a smaller card: the share holds";
}

// 1 TB/s: float32 lists take the memory's share on any card, 16 bits what 100 multiprocessors move where memory is
// faster.
TEST(MemoryScaling, ListsTakeTheMemorysShare) {
  DeviceRates of_card = rates();
  of_card.multi_tensor = {.launch_us = 0, .bandwidth = 0.5, .elements = 1};
  of_card.scaling = {.bytes_per_second = 1e12, .multiprocessors = 100, .share = 0.5, .source = ""};
  carry_over(of_card, 4e12, 100);
  EXPECT_EQ(of_card.multi_tensor.bandwidth, 0.5);
  Kernel list = kernel(8e9, Phase::kOptimizer);
  list.kind = KernelKind::kMultiTensor;
  list.elements = 2e9;
  list.work = work::TensorList{};
  DeviceSpec fast = device();
  fast.memory_bandwidth_bytes_per_second = 8e12;
  list.dtype = DType::kFloat32;
  EXPECT_NEAR(kernel_seconds(list, fast, of_card), 8e9 / 4e12, 1e-6);
  list.dtype = DType::kBFloat16;
  EXPECT_NEAR(kernel_seconds(list, fast, of_card), 8e9 / (2.89e12 * 100 / 132), 1e-6);
  EXPECT_NEAR(kernel_seconds(list, device(), of_card), 8e9 / (0.5 * 0.945 * 1e12), 1e-6) << "slower memory decides";
}

// 256 x 128 tiles without prologue: one wave of 100 tiles of 2 * 256 * 128 * 4096 FLOPs each on 1/100 of 1 PFLOP/s.
TEST(Products, OneWaveByHand) {
  Kernel of_product = kernel(0);
  of_product.dtype = DType::kBFloat16;
  work::Product product{.batch = 1, .m = 2560, .n = 1280, .k = 4096};
  ProductRates r;
  r.launch_us = 0;
  r.tile_us = 1e-9;
  r.ragged = 1;
  r.narrow = 1;  // no smaller tile pays
  EXPECT_NEAR(product_seconds(of_product, product, device(), r), 2.0 * 256 * 128 * 4096 / 1e13, 1e-9);
  product.m += 1;  // a second wave for one row of tiles
  EXPECT_GT(product_seconds(of_product, product, device(), r), 1.3 * 2.0 * 256 * 128 * 4096 / 1e13);
}

TEST(Products, OddRowsLoseTheTensorMemoryAccelerator) {
  Kernel of_product = kernel(0);
  of_product.dtype = DType::kBFloat16;
  work::Product product{.m = 8192, .n = 50304, .k = 768, .transposed = Transposed::kSecond};
  ProductRates r;
  r.misaligned = 0.1;
  r.half_misaligned = 0.3;
  const double aligned = product_seconds(of_product, product, device(), r);
  product.n = 50257;  // GPT-2's vocabulary
  EXPECT_GT(product_seconds(of_product, product, device(), r), 5 * aligned);
  product.n = 30522;  // BERT's
  EXPECT_LT(product_seconds(of_product, product, device(), r), 4 * aligned);
}

}  // namespace
}  // namespace memcalc
