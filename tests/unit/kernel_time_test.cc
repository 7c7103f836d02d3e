// cost/kernel_time.h, attention.h, product.h, collective.h: models of single kernels where they can be worked out by
// hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "memcalc/cost/convolution_times.h"
#include "memcalc/cost/cost.h"
#include "memcalc/cost/host_time.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/compiled_code.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/conv.h"
#include "memcalc/symbolic/ops/interpolate.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/shard_copies.h"
#include "memcalc/symbolic/vector_quantize.h"
#include "memcalc/symbolic/within_call.h"
#include "support/plain_rates.h"
#include "support/tape_bench.h"

namespace memcalc {
namespace {

using test::device;
using test::kernel;
using test::kOp;
using test::rates;
using test::seconds_of;

TEST(Attention, WithoutKeysTakesItsLaunch) {
  Kernel nothing = kernel(0);
  nothing.kind = KernelKind::kCudnnAttention;
  nothing.dtype = DType::kBFloat16;
  AttentionRates attention;
  attention.launch_us = 2;
  EXPECT_NEAR(attention_seconds(nothing, {}, device(), attention), 2e-6, 1e-12);
}

// Mistral's twelve layers under AdamW on an H200: 1,104 kernels of multi_tensor_apply; a fused rule has an eighth.
TEST(KernelTime, AListIsLaunchedInPieces) {
  Kernel step = kernel(0, Phase::kOptimizer);
  step.kind = KernelKind::kMultiTensor;
  step.dtype = DType::kBFloat16;
  step.elements = 2'879'492'096;
  step.work = work::TensorList{.tensors = 111};
  step.bytes = 18 * 2 * step.elements;
  EXPECT_EQ(list_launches(step), 1104);
  step.bytes = 7 * 2 * step.elements;
  EXPECT_EQ(list_launches(step), 138);
  DeviceRates gaps = rates();
  KernelList list;
  list.push_back(step);
  const double without = seconds_of(list, device(), gaps).front();
  gaps.host.gap_us = 1;
  EXPECT_NEAR(seconds_of(list, device(), gaps).front() - without, 138e-6, 1e-9);
}

// A layer of Mistral's, 436 MB, takes 220 us to be taken apart and 255 to be put together on an H200 of 4.8 TB/s.
TEST(KernelTime, CopiesOfFsdp2HaveTheirOwnRates) {
  DeviceSpec card = device();
  card.memory_bandwidth_bytes_per_second = 4.8e12;
  Kernel copy = kernel(2 * 436.2e6);
  copy.kind = KernelKind::kMultiTensor;
  copy.work = work::TensorList{.tensors = 9};
  copy.op = &kSplitWithSizesCopy;
  EXPECT_NEAR(kernel_seconds(copy, card, rates()), 220e-6, 3e-6);
  copy.op = &kChunkCat;
  EXPECT_NEAR(kernel_seconds(copy, card, rates()), 255e-6, 3e-6);
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

// An H200's step of maskrcnn_resnet50_fpn, seed 5021: the mean of four images' suppressions, of eight levels'
// gradients.
TEST(KernelTime, RegionsAreSuppressedOneAfterTheOtherAndAddedAtomically) {
  Kernel suppression = kernel(8'382 * 131 * 8);
  suppression.op = &aten::kNms;
  suppression.work = work::Rows{.count = 8'382, .width = 131};
  EXPECT_NEAR(kernel_seconds(suppression, device(), rates()), 4.52e-3, 0.02e-3);
  Kernel alignment = kernel(0);
  alignment.op = &aten::kRoiAlign;
  work::Rows elements{.count = 512 * 256 * 7 * 7, .width = 4};
  alignment.work = elements;
  EXPECT_NEAR(kernel_seconds(alignment, device(), rates()), 133e-6, 2e-6);
  elements.backward = true;
  alignment.work = elements;
  EXPECT_NEAR(kernel_seconds(alignment, device(), rates()), 650e-6, 2e-6);
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
// cuda/SoftMax.cu: from float16 to float32, as under autocast.
TEST(Softmax, RowsOfFloat16ThatAreWidenedAndNotAlignedTakeABlockEach) {
  const auto seconds = [](std::int64_t width, double bytes_of_value) {
    constexpr std::int64_t kRows = 100000;
    Kernel softmax = kernel(static_cast<double>(kRows * width) * bytes_of_value);
    softmax.dtype = DType::kFloat16;
    return softmax_seconds(softmax, {.count = kRows, .width = width, .softmax = true}, device(), rates());
  };
  EXPECT_NEAR(seconds(1500, 6), 4.5e-6 + 100000.0 / (2 * 100) * 3.44e-6, 1e-9);
  EXPECT_LT(seconds(1504, 6), seconds(1500, 6)) << "shared memory holds it";
  EXPECT_LT(seconds(1500, 4), seconds(1500, 6)) << "a warp holds it";
}

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

DeviceSpec h100() {
  DeviceSpec card = device();
  card.multiprocessors = 132;
  card.memory_bandwidth_bytes_per_second = 3.35e12;
  card.fp32_flops_per_second = 67e12;
  card.bf16_flops_per_second = 989.4e12;
  return card;
}

/// Of images of `side` x `side` pixels, a window of 3 x 3 and a stride of 1.
Kernel grouped_convolution(std::int64_t batch, std::int64_t channels, std::int64_t groups, std::int64_t side) {
  const std::int64_t of_group = channels / groups;
  Kernel each =
      kernel(2.0 * static_cast<double>(channels) * static_cast<double>(2 * batch * side * side + 9 * of_group));
  each.dtype = DType::kBFloat16;
  each.kind = of_group == 1 ? KernelKind::kDepthwiseConvolution : KernelKind::kConvolution;
  each.work = work::Convolution{.groups = groups,
                                .pixels = batch * side * side,
                                .channels = of_group,
                                .depth = 9 * of_group,
                                .group_channels = static_cast<double>(of_group),
                                .images = batch};
  return each;
}

// Rows of specs/measured/h100-sxm/convolution_times.txt.
TEST(KernelTime, AConvolutionThatWasMeasuredTakesWhatItTook) {
  Kernel image = grouped_convolution(2, 32, 1, 112);
  const auto seconds = [&] {
    return measured_convolution_seconds(image, *image.as<work::Convolution>(), h100(), rates());
  };
  EXPECT_NEAR(seconds(), 17.6e-6, 0.03 * 17.6e-6);
  std::get<work::Convolution>(image.work).channels_last = true;
  EXPECT_NEAR(seconds(), 7.26e-6, 0.03 * 7.26e-6);
  const Kernel groups = grouped_convolution(32, 576, 24, 14);
  EXPECT_NEAR(measured_convolution_seconds(groups, *groups.as<work::Convolution>(), h100(), rates()), 59e-6,
              0.03 * 59e-6);
}

// A Fourier transform of an image of 28 x 28 is one tile of 32 x 32, of 32 x 32 four: 512 channels of 112 images took
// 3,619 us in a profiled step of an H200 (seed 13001; 15,000 were told by the pixels of all images alone), and 29,890.
TEST(KernelTime, AnImageOfOneTileOfAFourierTransformIsNotLikeOneOfFour) {
  const auto microseconds = [&](std::int64_t side) {
    Kernel layer = grouped_convolution(112, 512, 1, side);
    layer.dtype = DType::kFloat32;
    layer.bytes *= 2;
    return 1e6 * measured_convolution_seconds(layer, *layer.as<work::Convolution>(), h100(), rates());
  };
  EXPECT_NEAR(microseconds(28), 3619, 0.35 * 3619);
  EXPECT_NEAR(microseconds(32), 29890, 0.05 * 29890);
}

// Layers of VGG-16 with 112 images in a profiled step of an H200 (step_operators_h200.jsonl.gz, seed 8005), which are
// larger than what the table has of them: 764 and 897 us were told by ratios of smaller ones to FLOPs alone.
TEST(KernelTime, ALargerConvolutionThanTheMeasuredOnesGoesByItsWavesAndLayouts) {
  DeviceSpec h200 = h100();
  h200.memory_bandwidth_bytes_per_second = 4.8e12;
  DeviceRates of_h200 = rates();
  of_h200.measured_on = "h200-sxm";
  of_h200.scaling.share = 0.9;
  const auto microseconds = [&](std::int64_t channels, std::int64_t side) {
    const Kernel layer = grouped_convolution(112, channels, 1, side);
    return 1e6 * measured_convolution_seconds(layer, *layer.as<work::Convolution>(), h200, of_h200);
  };
  EXPECT_NEAR(microseconds(512, 28), 684.8, 0.03 * 684.8);
  EXPECT_NEAR(microseconds(256, 56), 827.0, 0.03 * 827.0);
  EXPECT_NEAR(microseconds(128, 112), 1186.4, 0.03 * 1186.4);
}

// Its clock is the datasheet's float32 over 128 lanes of a multiprocessor, each of which multiplies and adds.
TEST(KernelTime, WhatIsNotTheMemorysInAConvolutionTakesCycles) {
  const Kernel image = grouped_convolution(32, 64, 1, 112);
  const auto seconds = [&](const DeviceSpec& device) {
    return measured_convolution_seconds(image, *image.as<work::Convolution>(), device, rates());
  };
  DeviceSpec slower = h100();
  slower.fp32_flops_per_second /= 2;
  EXPECT_GT(seconds(slower), 1.1 * seconds(h100())) << "at half the clock";
}

// 128 columns of 602,112 rows in bfloat16: 2,112 blocks go over 285 rows each, and the four rows of threads of the last
// block read 528 sums one after the other: 219.9 us on an H200 (tests/measured/step_operators_h200.jsonl.gz), of which
// the bytes alone take 43.
TEST(KernelTime, ASumOfFewColumnsReadsWhatItsBlocksHaveSummed) {
  const auto sum_of = [](double rows, double columns) {
    Kernel sum = kernel(2 * (rows * columns + columns), Phase::kBackward);
    sum.op = &aten::kSum;
    sum.kind = KernelKind::kColumnSum;
    sum.dtype = DType::kBFloat16;
    sum.elements = rows * columns;
    return sum;
  };
  DeviceSpec h200 = h100();
  h200.memory_bandwidth_bytes_per_second = 4.8e12;
  DeviceRates of_h200 = rates();
  of_h200.column_sum = {.launch_us = 6.7, .bandwidth = 0.74, .elements = 1};
  const auto microseconds = [&](double rows, double columns) {
    return 1e6 * kernel_seconds(sum_of(rows, columns), h200, of_h200);
  };
  EXPECT_NEAR(microseconds(602112, 128), 219.9, 0.15 * 219.9);
  EXPECT_NEAR(microseconds(37632, 512), 50.9, 0.1 * 50.9);
  EXPECT_NEAR(microseconds(36000, 4096), 87.2, 0.15 * 87.2);
  EXPECT_NEAR(microseconds(784, 1536), 12.8, 0.15 * 12.8) << "a block of threads for each column";
  Kernel turned = sum_of(37632, 512);  // over the images of a batch whose channels are last
  turned.kind = KernelKind::kTurned;
  EXPECT_EQ(kernel_seconds(turned, h200, of_h200), kernel_seconds(sum_of(37632, 512), h200, of_h200));
}

// Of an H200: 1,024 channels of 27,648 values in float16 are held and take 73.0 us back, 512 of 110,592 are not, 230.6.
TEST(KernelTime, BatchNormReadsAChannelOnceThatABlockHolds) {
  DeviceRates of_h200 = rates();
  of_h200.blocks.source = "here";
  of_h200.blocks.cudnn_batch_norm_backward = {.launch_us = 3.5, .chain_ns = 1.48, .byte_ns = 0.24};
  of_h200.image = {.launch_us = 2.4, .bandwidth = 0.6225, .elements = 1};
  DeviceSpec h200 = h100();
  h200.memory_bandwidth_bytes_per_second = 4.8e12;
  Kernel each = kernel(1e6, Phase::kBackward);
  each.op = &aten::kCudnnBatchNormBackward;
  each.kind = KernelKind::kImage;
  each.dtype = DType::kFloat16;
  each.work = work::Rows{.count = 1024, .width = 27648, .backward = true};
  EXPECT_NEAR(kernel_seconds(each, h200, of_h200), 73.0e-6, 0.1 * 73.0e-6);
  each.work = work::Rows{.count = 512, .width = 110592, .backward = true};
  EXPECT_NEAR(kernel_seconds(each, h200, of_h200), 230.6e-6, 0.05 * 230.6e-6);
}

// Of an H200 in bfloat16: images of 14 x 14 pixels keep 196 of 256 threads busy, so that they take as long as 16 x 16.
TEST(KernelTime, PyTorchsBatchNormTakesABlocksSteps) {
  const auto microseconds = [](std::int64_t images, std::int64_t channels, std::int64_t side, bool backward) {
    const std::int64_t width = images * side * side;
    Kernel each = kernel(2e6, backward ? Phase::kBackward : Phase::kForward);
    each.op = backward ? &aten::kNativeBatchNormBackward : &aten::kNativeBatchNorm;
    each.kind = KernelKind::kImage;
    each.dtype = DType::kBFloat16;
    each.work = work::Rows{.count = channels, .width = width, .backward = backward, .images = images};
    DeviceRates of_h200 = rates();
    of_h200.blocks.source = "here";
    return 1e6 * kernel_seconds(each, h100(), of_h200);
  };
  EXPECT_NEAR(microseconds(96, 96, 112, false), 1201.0, 0.08 * 1201.0);
  EXPECT_NEAR(microseconds(112, 336, 28, true), 240.0, 0.05 * 240.0);
  EXPECT_NEAR(microseconds(96, 1280, 7, false), 98.6, 0.08 * 98.6) << "a block for 49 pixels of an image";
  EXPECT_NEAR(microseconds(96, 32, 28, false), 57.8, 0.15 * 57.8);
  EXPECT_DOUBLE_EQ(microseconds(64, 32, 14, true), microseconds(64, 32, 16, true));
}

// cuDNN's filters of 7 x 7 over images whose channels are last, float32, of an H200: a block for each channel.
TEST(KernelTime, ADepthwiseGradientInFloat32IsAChannelsBlock) {
  const auto gradient = [](std::int64_t channels, std::int64_t pixels, bool tf32) {
    Kernel each = kernel(4.0 * static_cast<double>(2 * channels * pixels + 49 * channels), Phase::kBackward);
    each.kind = KernelKind::kConvolution;
    each.flops = 2.0 * static_cast<double>(channels * pixels * 49);
    each.work = work::Convolution{.groups = channels,
                                  .pixels = pixels,
                                  .channels = 1,
                                  .depth = 49,
                                  .group_channels = 1,
                                  .tf32 = tf32,
                                  .backward = true,
                                  .weight_gradient = true,
                                  .channels_last = true};
    return each;
  };
  DeviceSpec h200 = h100();
  h200.memory_bandwidth_bytes_per_second = 4.8e12;
  h200.tf32_flops_per_second = 494.7e12;
  DeviceRates of_h200 = rates();
  of_h200.depthwise = {.launch_us = 3, .direct_float32_weight = 0.00944};
  of_h200.image.bandwidth = 1;
  const auto milliseconds = [&](const Kernel& each) {
    return 1e3 * depthwise_seconds(each, *each.as<work::Convolution>(), h200, of_h200);
  };
  EXPECT_NEAR(milliseconds(gradient(96, 524288, false)), 49.2, 0.11 * 49.2);
  EXPECT_NEAR(milliseconds(gradient(768, 4704, true)), 0.817, 0.11 * 0.817);
  EXPECT_NEAR(milliseconds(gradient(96, 301056, true)), 6.73, 0.11 * 6.73) << "few channels in TF32: a product";
}

TEST(KernelTime, AGroupOfMuchIsABlocksAlone) {
  DeviceRates of_blocks = rates();
  of_blocks.blocks.source = "here";
  of_blocks.rowwise.launch_us = 1;
  Kernel each = kernel(1e6);
  each.op = &aten::kNativeGroupNorm;
  each.kind = KernelKind::kRowwise;
  each.work = work::Rows{.count = 8, .width = 1'000'000};
  EXPECT_NEAR(kernel_seconds(each, device(), of_blocks), 833e-6, 1e-9);  // 0.83 ns an element, three launches
  each.work = work::Rows{.count = 8000, .width = 10};
  EXPECT_NEAR(kernel_seconds(each, device(), of_blocks), 4e-6, 1e-9);
}

TEST(KernelTime, TheGradientOfAConvolutionsBiasIsSlowerThanRows) {
  DeviceRates rates_of_rows = rates();
  rates_of_rows.row_sum = {.launch_us = 0, .bandwidth = 1, .elements = 1};
  Kernel each = kernel(3e6, Phase::kBackward);
  each.kind = KernelKind::kRowSum;
  EXPECT_NEAR(kernel_seconds(each, device(), rates_of_rows), 3e-6, 1e-12);
  each.node = &aten::kConvolution.node;
  EXPECT_NEAR(kernel_seconds(each, device(), rates_of_rows), 9e-6, 1e-12);  // 5 us, and three quarters of the rate
}

TEST(KernelTime, ManySmallProductsShareMultiprocessors) {
  Kernel each = kernel(0);
  each.kind = KernelKind::kMatrixProduct;
  each.work = work::Product{.batch = 80'000, .m = 9, .n = 9, .k = 100};
  ProductRates products;
  products.launch_us = 0;
  products.tile_us = 10;  // of the larger tiles
  // A hundred waves of 800 blocks, each 2 us and 0.07 us a step.
  EXPECT_NEAR(product_seconds(each, *each.as<work::Product>(), device(), products), 100 * 9e-6, 1e-9);
  // A window's scores: as many waves of 400 blocks of 64 x 64.
  each.work = work::Product{.batch = 40'000, .m = 49, .n = 49, .k = 32};
  EXPECT_NEAR(product_seconds(each, *each.as<work::Product>(), device(), products), 100 * 7.12e-6, 1e-9);
}

// A block looks through each slice; what it took is sorted by another kernel.
TEST(KernelTime, TopkTakesItsSlices) {
  Kernel topk = kernel(0);
  topk.op = &aten::kTopk;
  topk.work = work::Rows{.count = 10'000, .width = 16};
  EXPECT_NEAR(kernel_seconds(topk, device(), rates()), 21.5e-6, 1e-9);
  topk.launches = 2;
  EXPECT_NEAR(kernel_seconds(topk, device(), rates()), 32.5e-6, 1e-9);
}

// However many the slices are: where they are long several blocks share each, and go over all of it four times.
TEST(KernelTime, TopkOfLongSlicesGoesByItsElements) {
  Kernel topk = kernel(0);
  topk.op = &aten::kTopk;
  topk.work = work::Rows{.count = 4000, .width = 32'000};
  const double fewer = kernel_seconds(topk, device(), rates());
  topk.work = work::Rows{.count = 8000, .width = 32'000};
  EXPECT_NEAR(kernel_seconds(topk, device(), rates()) / fewer, 2, 0.1);
}

// As many rows for each expert would fill each wave of tiles.
TEST(KernelTime, ExpertsThatAreMultipliedInALoopAreUneven) {
  Kernel one = kernel(0), groups = kernel(0);
  one.kind = KernelKind::kMatrixProduct;
  one.work = work::Product{.batch = 1, .m = 2560, .n = 1280, .k = 4096};
  groups.kind = KernelKind::kGroupedProduct;
  groups.op = &aten::kGroupedMm;
  groups.launches = 8;
  groups.work = work::Product{.batch = 8, .m = 2560, .n = 1280, .k = 4096};
  const double even = 8 * kernel_seconds(one, device(), rates());
  EXPECT_GT(kernel_seconds(groups, device(), rates()), even);
  EXPECT_LT(kernel_seconds(groups, device(), rates()), 1.5 * even);
}

// Float32 reads and writes each place beside the rows; where rows share a place or have 16 bits, adding decides.
TEST(KernelTime, SortedPlacesTakePassesAndSums) {
  Kernel put = kernel(0);
  put.op = &aten::kIndexPutImpl;
  put.kind = KernelKind::kEmbeddingBackward;
  put.work = work::EmbeddingGradient{.indices = 65536, .width = 1, .table_rows = 65536};
  const double before = 6e-6 + 24e-6 + 2e-6;
  EXPECT_NEAR(kernel_seconds(put, device(), rates()), before + 65536 * 0.21e-9, 1e-9);
  put.work = work::EmbeddingGradient{.indices = 65536, .width = 1024, .table_rows = 65536};
  const double bytes = 3.0 * 65536 * 1024 * 4, added = 65536.0 * 1024 / (0.44e12 * device().multiprocessors / 132);
  const double moved = bytes / (0.8 * device().memory_bandwidth_bytes_per_second);
  EXPECT_NEAR(kernel_seconds(put, device(), rates()), before + std::max(moved, added), 1e-9);
  put.work = work::EmbeddingGradient{.indices = 640, .width = 1, .table_rows = 640};
  EXPECT_NEAR(kernel_seconds(put, device(), rates()), 12.5e-6 + 640 * 0.21e-9, 1e-9);
}

TEST(KernelTime, AnIndexCalculationDecidesWhereOperandsAreNotContiguous) {
  DeviceRates of = rates();
  of.strided = {.launch_us = 0, .bandwidth = 1, .elements = 1e-3};  // 1e12 elements a second
  Kernel kernel;
  kernel.op = &kOp;
  kernel.kind = KernelKind::kStrided;
  kernel.dtype = DType::kBFloat16;
  kernel.elements = 1e8;
  kernel.bytes = 1e6;
  EXPECT_NEAR(kernel_seconds(kernel, device(), of), 100e-6, 1e-9);
  kernel.bytes = 6e8;  // two operands and the result, and 600 us of memory
  EXPECT_NEAR(kernel_seconds(kernel, device(), of), 600e-6, 1e-9);
  of.strided.bandwidth = 100;
  EXPECT_NEAR(kernel_seconds(kernel, device(), of), 100e-6 / 0.9, 1e-9) << "offsets of two operands";
  kernel.dtype = DType::kFloat32;
  EXPECT_NEAR(kernel_seconds(kernel, device(), of), 100e-6 / 0.6, 1e-9) << "one of them of 16 bits, and converted";
  kernel.bytes = 4e8;
  EXPECT_NEAR(kernel_seconds(kernel, device(), of), 100e-6 / 0.96, 1e-9) << "of two operands that are repeated";
  kernel.op = &aten::kDiv;
  EXPECT_NEAR(kernel_seconds(kernel, device(), of), 100e-6 / 1.17, 1e-9) << "of one";
  kernel.op = &kOp;
  kernel.bytes = 6e8;
  kernel.dtype = DType::kBFloat16;
  kernel.bytes = 2e8;
  kernel.kind = KernelKind::kTurned;
  EXPECT_NEAR(kernel_seconds(kernel, device(), of), 100e-6 / 0.42, 1e-9);
  kernel.op = &aten::kCat;
  EXPECT_NEAR(kernel_seconds(kernel, device(), of), 100e-6 / 0.45, 1e-9) << "with an empty tensor";
}

// mamba2's states, [batch, time, heads, width], whose heads lie side by side in memory.
TEST(KernelTime, ThreadsThatReadFarApartAreKnownByTheStrides) {
  test::TapeBench bench;
  bench.tape.kernels.recording = true;
  const Tensor turned = bench.strided_input({2, 8, 4, 16}, {512, 64, 1, 4}, DType::kFloat32, false);
  const Tensor repeated = bench.input({2, 1, 4, 16}, DType::kFloat32, false);
  const Tensor expanded = bench.strided_input({2, 8, 4, 16}, {64, 0, 16, 1}, DType::kFloat32, false);
  const auto last = [&]() -> const Kernel& { return *bench.tape.kernels.last(); };
  (void)reduced(aten::kSum, turned, 0b1000U, false);
  EXPECT_EQ(last().kind, KernelKind::kTurned);
  (void)reduced(aten::kSum, turned, 0b0010U, false);
  EXPECT_EQ(last().kind, KernelKind::kColumnSum);
  (void)reduced(aten::kSum, repeated, 0b1000U, false);
  EXPECT_EQ(last().kind, KernelKind::kRowSum);
  (void)pointwise(aten::kMul, {&turned, &repeated}, 1);
  EXPECT_EQ(last().kind, KernelKind::kTurned) << "repeated over the time, the other way round in heads and width";
  (void)pointwise(aten::kDiv, {&expanded}, 1);
  EXPECT_EQ(last().bytes, (2 * 4 * 16 + 2 * 8 * 4 * 16) * 4.0) << "each element is read once";
}

// native/transformers/attention.cpp: each row is asked whether all of it is masked; T5 adds its position bias in place,
// whose heads lie side by side in memory.
TEST(KernelTime, PartsOfSafeSoftmaxAndInPlaceSumsAreKernels) {
  test::TapeBench bench;
  bench.tape.kernels.recording = true;
  const Tensor scores = bench.input({2, 4, 8, 8}, DType::kFloat32, false);
  const Tensor bias = bench.strided_input({1, 4, 8, 8}, {256, 1, 32, 4}, DType::kBFloat16, false);
  (void)add_in_place(scores, bias);
  EXPECT_EQ(bench.tape.kernels.last()->kind, KernelKind::kTurned);
  EXPECT_EQ(bench.tape.kernels.last()->bytes, 2 * 512 * 4.0 + 256 * 2);
  (void)safe_softmax(scores);
  std::string named;
  for (const Kernel& kernel : bench.tape.kernels.list()) named += std::string(kernel.op->name) + " ";
  EXPECT_EQ(named, "aten::add_ aten::_softmax aten::isneginf aten::all aten::where ");
}

// native/Convolution.cpp: output.add_(reshape_bias(bias)) behind cuDNN's kernel, which the model's Python does not
// call; UpSampleBilinear2d.cu copies where the sizes are the same.
TEST(KernelTime, ABiasOfAConvolutionIsAddedAndAnImageOfTheSameSizeCopied) {
  test::TapeBench bench;
  bench.tape.kernels.recording = true;
  const Tensor x = bench.input({2, 8, 16, 16}, DType::kBFloat16, false);
  const Tensor weight = bench.input({4, 8, 3, 3}, DType::kBFloat16, false);
  const Tensor bias = bench.input({4}, DType::kBFloat16, false);
  (void)conv2d(x, weight, Tensor(), {.padding = 1});
  EXPECT_EQ(bench.tape.kernels.last()->kind, KernelKind::kConvolution);
  (void)conv2d(x, weight, bias, {.padding = 1});
  const Kernel& added = *bench.tape.kernels.last();
  EXPECT_EQ(added.op, &aten::kAddInPlace);
  EXPECT_EQ(added.bytes, 2 * (2 * 4 * 16 * 16 * 2.0) + 4 * 2);
  EXPECT_TRUE(is_within_operator(added));
  (void)interpolate(x, {2, 8, 16, 16}, Interpolation::kLinear);
  EXPECT_EQ(bench.tape.kernels.last()->kind, KernelKind::kVectorized);
  (void)interpolate(x, {2, 8, 32, 32}, Interpolation::kLinear);
  EXPECT_EQ(bench.tape.kernels.last()->kind, KernelKind::kImage);
}

TEST(KernelTime, FunctionsOf16BitsAreComputedMoreSlowlyThanFastMemoryGivesThem) {
  Kernel kernel;
  kernel.op = &aten::kGelu;
  kernel.dtype = DType::kBFloat16;
  kernel.elements = 1e8;
  kernel.bytes = 1;
  EXPECT_NEAR(kernel_seconds(kernel, device(), rates()), 1e8 / 0.78e12 * 132 / 100, 1e-9);
  kernel.op = &aten::kNeg;
  EXPECT_LT(kernel_seconds(kernel, device(), rates()), 1e-6);
}

// 40 of 100 float32 FLOP/s are instructions that are issued, two FLOPs each.
TEST(KernelTime, TritonsKernelsTakeTheirBytesOrTheirInstructions) {
  Kernel fused;
  fused.op = &kFusedPointwise;
  fused.elements = 1e9;
  fused.bytes = 1;
  const double issued = 1e9 / (0.4 * device().fp32_flops_per_second);
  const double launched = kernel_seconds(fused, device(), rates()) - issued;
  EXPECT_GE(launched, 0);
  EXPECT_LT(launched, 1e-5);
  fused.elements = 1;
  fused.bytes = 1e9;
  const double moved = kernel_seconds(fused, device(), rates()) - launched;
  fused.op = &kFusedBothWays;
  EXPECT_NEAR((kernel_seconds(fused, device(), rates()) - launched) / moved, 1 / 0.7, 1e-9);
}

TEST(KernelTime, RowsOfOnePlaceAreAddedOneAfterTheOther) {
  Kernel put = kernel(0, Phase::kBackward);
  put.kind = KernelKind::kStrided;
  put.op = &aten::kIndexPutImpl;
  put.work = work::EmbeddingGradient{.indices = 4800, .width = 1024, .table_rows = 100};
  const double spread = kernel_seconds(put, device(), rates());
  put.work = work::EmbeddingGradient{.indices = 4800, .width = 1024, .table_rows = 10};
  const double untouched = 2 * 90 * 1024 * 4 / 0.8e12;
  EXPECT_NEAR(kernel_seconds(put, device(), rates()) - spread, (479 - 47) * 1.5e-6 - untouched, 1e-12);
}

// The products alone would be as long for one group of all rows; what a buffer is read and written for is not hidden.
TEST(KernelTime, ExpertsProductsOfAnEngineTakeTimeForEachGroup) {
  static constexpr Operator kGrouped{"transformer_engine::te_general_grouped_gemm"};
  Kernel grouped = kernel(0);
  grouped.kind = KernelKind::kGroupedProduct;
  grouped.op = &kGrouped;
  grouped.dtype = DType::kBFloat16;
  grouped.work = work::Product{.batch = 20, .m = 1024, .n = 1024, .k = 1024};
  Kernel alone = grouped;
  alone.op = &aten::kBmm;
  const double product = kernel_seconds(alone, device(), rates());
  EXPECT_NEAR(kernel_seconds(grouped, device(), rates()) - product, 20 * 4.7e-6, 1e-9);
}

}  // namespace
}  // namespace memcalc
