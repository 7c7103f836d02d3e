// Products of matrices: the result is cut into tiles, each SM computes one at a time, and the last wave of tiles may
// leave SMs idle. Of a few tile shapes and splits of the inner dimension the quickest is taken, as cuBLAS's heuristics
// aim to.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include "memcalc/base/seconds.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/measured_card.h"
#include "memcalc/spec/cuda_architecture.h"

namespace memcalc {

namespace {

struct Tile {
  double rows, columns;
};
// Of cuBLAS's kernels on Hopper (names of nvjet_sm90 and sm80 kernels in profiles of an H100).
constexpr std::array<Tile, 7> kTiles = {
    {{256, 128}, {128, 256}, {128, 128}, {256, 64}, {128, 64}, {64, 128}, {64, 64}}};
constexpr std::array<double, 4> kSplits = {1, 2, 4, 8};

double ceil_of(double a, double b) { return std::ceil(a / b); }

/// How much more of its aligned rate a card without Hopper's instructions keeps where rows are misaligned. An H200 then
/// takes kernels of Turing and Ampere (cutlass_75_tensorop_bf16_s1688gemm_..._align1, cutlass_80_tensorop_..._align2:
/// 713 of 723 in 16 bits in tests/measured/product_times_h200.jsonl.gz, 8 are sm90's), whose loads decide: they reach a
/// sixth and a third of Hopper's own kernels' rate. Other cards are assumed to take the same kernels, at their
/// multiprocessors' cycles and, an assumption too, in proportion to their units that load and store: 32 of a
/// multiprocessor, 16 of compute capability 7.5, 8.6 to 8.9 and 12.0 (whitepapers: "NVIDIA Turing GPU Architecture",
/// "NVIDIA A100 Tensor Core GPU Architecture", "NVIDIA Ampere GA102 GPU Architecture", "NVIDIA Ada GPU Architecture").
/// No misaligned product of such a card was measured; steps were (published-blind.md: ViTs on an RTX 3090). Volta has
/// no s1688 kernels, AMD none of these, Blackwell's large cards were not looked at: they keep an H100's share.
double misaligned_on(const Kernel& kernel, const DeviceSpec& device) {
  const CudaArchitecture architecture = architecture_of(device);
  const bool few_loads = architecture == CudaArchitecture::kTuring ||
                         (architecture > CudaArchitecture::kAmpere && architecture < CudaArchitecture::kHopper) ||
                         is_of(device, architecture_of(12, 0));
  const bool same_kernels = few_loads || architecture == CudaArchitecture::kAmpere;
  if (!same_kernels || !device.rates || !device.rates->predicted) return 1;
  const double cycles = cycles_of(device) / kMeasuredCycles * (few_loads ? 0.5 : 1);
  return cycles * kMeasuredHalfFlops / sustained_flops(kernel, device);
}

/// Share of the rate that misaligned rows leave. A row of 16-byte multiples can be fetched by the tensor memory
/// accelerator and by 128-bit loads; rows at odd elements need one load an element.
double alignment_share(const Kernel& kernel, const work::Product& product, bool in_half, double of_layout,
                       const DeviceSpec& device, const ProductRates& rates) {
  const bool first = product.transposed == Transposed::kFirst || product.transposed == Transposed::kBoth;
  const bool second = product.transposed == Transposed::kSecond || product.transposed == Transposed::kBoth;
  const std::int64_t row_a = first ? product.m : product.k;
  const std::int64_t row_b = second ? product.k : product.n;
  if (!in_half && !product.tf32) return 1;
  const auto aligned_to = [&](std::int64_t elements) {
    return row_a % elements == 0 && row_b % elements == 0 && product.n % elements == 0;
  };
  // TF32 on Hopper: kernels of Ampere (cutlass_80_tensorop_s1688gemm) at 95 to 137 TFLOP/s, whatever the layout (13
  // vocabularies in product_times.txt; 250,054 at 117 to 131, step_operators_h200.jsonl.gz). Float32: no loss was seen.
  constexpr double kTf32Share = 0.25;  // of the datasheet's rate
  const bool by_hopper = architecture_of(device) >= CudaArchitecture::kHopper;
  if (!in_half) return aligned_to(4) || !by_hopper ? 1 : std::min(1.0, kTf32Share / of_layout);
  if (aligned_to(8)) return 1;
  // 8 bytes: 0.32 to 0.35 of the rate in RemBERT's head of 250,300 (H100, 2026-11-26), as with 4 bytes
  const double share = aligned_to(2) ? rates.half_misaligned : rates.misaligned;
  return std::min(1.0, share * misaligned_on(kernel, device));
}

double efficiency(const work::Product& product, const ProductRates& rates) {
  switch (product.transposed) {
    case Transposed::kNone: return rates.plain;
    case Transposed::kFirst: return rates.first;
    case Transposed::kSecond: return rates.second;
    case Transposed::kBoth: return std::min(rates.first, rates.second);
  }
  return rates.plain;
}

/// Blocks of many small products: their side, how many a multiprocessor holds, what one takes, and each step of the
/// inner dimension of float32 and of 16 bits.
struct SmallBlocks {
  double side, blocks, block_us, step_us, half_step_us;
};
/// Of the H100's in tests/measured/operator_times_h100.jsonl.gz (1,024 to 196,608 products, a side of at most 32),
/// 2026-11-26, with parts of waves: whole ones (2026-11-30) add 0 to 3.1 % in these 34 rows.
constexpr SmallBlocks kSmall{.side = 32, .blocks = 8, .block_us = 2, .step_us = 0.07, .half_step_us = 0.045};
/// Both sides of 33 to 64 (scores of Swin's windows, 49 x 49 over 32): kernels of 64 x 64. 16 bits of an H200's
/// profiled steps (96 to 18,432 products within 10 %, step_operators_h200.jsonl.gz), float32 of an H100's (384 to 3,072
/// within 8 %, network_operators_h100.jsonl.gz), 2026-11-30; TF32 is taken to be as float32.
constexpr SmallBlocks kMiddle{.side = 64, .blocks = 4, .block_us = 2, .step_us = 0.16, .half_step_us = 0.051};

double small_products_seconds(const SmallBlocks& of, double m, double n, double k, double batch, double multiprocessors,
                              bool half) {
  const double waves = std::ceil(ceil_of(m, of.side) * ceil_of(n, of.side) * batch / (of.blocks * multiprocessors));
  return waves * (of.block_us + k * (half ? of.half_step_us : of.step_us)) * kMicrosecond;
}

/// Both sides of at most 16 in 16 bits and 8 in float32, and very many: what SAM 2's windows of a few heads make of
/// their attention. In 16 bits blocks of 16 x 16 over steps of 32 (cutlass_80_wmma_..._16x16_32x1), from eight columns
/// on another kernel behind a memset; in float32 gemmSN_TN of 2, 4 and 8 columns; of one column a matrix by a vector
/// (gemvx). Of an H200's profiled steps, 4,096 to 1.6 million products over 56, 72 and 96, half within 5 %
/// (tests/measured/tiny_products_h200.jsonl).
bool is_tiny(double m, double n, double batch, bool half) {
  constexpr double kHalfSide = 16, kFloatSide = 8, kMany = 4096;
  return std::max(m, n) <= (half ? kHalfSide : kFloatSide) && batch >= kMany;
}

double tiny_products_seconds(double m, double n, double k, double batch, double multiprocessors, bool half) {
  constexpr double kStep = 32, kOverSteps = 96, kFewColumns = 4, kVectorNs = 1.35;
  const double columns = std::max(m, n);
  const double depth = std::ceil(k / kStep) * kStep / kOverSteps;
  double ns = kVectorNs;
  if (half && columns > kFewColumns) {
    ns = 3.3;
  } else if (half && columns > 1) {
    ns = 0.35 + 1.2 * depth;
  } else if (columns > 1) {
    ns = 0.45 + (1.45 + 1.05 * std::log2(columns)) * depth;
  }
  return batch * ns * kNanosecond * kMeasuredMultiprocessors / multiprocessors;
}

/// What few rows of float32 take of blocks that each go over the whole depth for 32 columns of the result.
struct FewRows {
  double launch_us, one_block_ns;  // a step of the depth where each multiprocessor has one block at most
  double more_ns, wave_ns;         // where they have several: the first's wait, and a step of each wave's
};

/// A few rows of float32: cuBLAS's kernels go over the matrix once. One row takes what memory takes. With more of them
/// a block has 32 columns, so that a narrow result of great depth leaves multiprocessors idle: 8 rows by 2,048 x 8,192
/// take 81 us, by 8,192 x 2,048 46. Up to four, eight and 16 rows have kernels of their own. Least squares over half of
/// 108 products of an H200 and an H100 (tests/measured/decode_kernels_h200.jsonl.gz, inference_parts_h100.jsonl,
/// 2026-11-30): half of the others are within 7.7, 2.0 and 6.5 %; by the matrix's elements alone 8.4, 13.5 and 15.4.
double few_rows_seconds(const work::Product& product, double bytes, const DeviceSpec& device) {
  constexpr double kShare = 0.829, kOneRowUs = 3.5, kColumns = 32;
  constexpr std::int64_t kFourRows = 4, kEightRows = 8;
  const double read = bytes / (kShare * device.memory_bandwidth_bytes_per_second);
  if (product.m == 1) return kOneRowUs * kMicrosecond + read;
  // The two steps are fitted apart, and nothing makes them meet where each multiprocessor has one block (4,224 columns
  // of an H200): 8.4 and 15.5 ns of more than eight rows.
  constexpr FewRows kUpToFour{.launch_us = 2.8, .one_block_ns = 4.7, .more_ns = 1.7, .wave_ns = 5.4};
  constexpr FewRows kUpToEight{.launch_us = 1.7, .one_block_ns = 9.9, .more_ns = 2.7, .wave_ns = 7.6};
  constexpr FewRows kMore{.launch_us = 8.5, .one_block_ns = 8.4, .more_ns = 8.0, .wave_ns = 7.5};
  const FewRows& of = product.m <= kFourRows ? kUpToFour : product.m <= kEightRows ? kUpToEight : kMore;
  const double waves = static_cast<double>(product.n) / (kColumns * static_cast<double>(device.multiprocessors));
  const double step_ns = waves <= 1 ? of.one_block_ns : of.more_ns + of.wave_ns * waves;
  const double computed = static_cast<double>(product.k) * step_ns * kNanosecond;
  return of.launch_us * kMicrosecond + std::max(read, computed);
}

bool is_forward(const work::Product& product) {
  return product.transposed == Transposed::kNone || product.transposed == Transposed::kSecond;
}

/// A matrix by a vector, many of them, in 16 bits: memory decides (gathered weights of experts for a token, 32 times
/// 1,024 x 1,024 and 1,024 x 512 in 14.0 us). Of an H200, 2026-11-29: tests/measured/inference_kernels_h200.jsonl
double many_vectors_seconds(double bytes, double bytes_per_second) {
  constexpr double kLaunchUs = 2.5, kShare = 0.91;
  return kLaunchUs * kMicrosecond + bytes / (kShare * bytes_per_second);
}

/// A large matrix that a few rows or columns go over once: most of a later token, and LoRA's products. Of the 386
/// aligned 16-bit products of an H200 with a side of at most 64 and at least 4 MB (product_times_h200.jsonl.gz): half
/// are within 8.7 % of it. The rates' own bandwidth is of products that write as much as they read.
double passed_once_seconds(double bytes, double bytes_per_second) {
  constexpr double kLaunchUs = 5.75, kShare = 0.869;
  return kLaunchUs * kMicrosecond + bytes / (kShare * bytes_per_second);
}

}  // namespace

bool is_few_float32_rows(const Kernel& kernel, const work::Product& product) {
  constexpr std::int64_t kFewRows = 16;
  return size_of(kernel.dtype) == 4 && !product.tf32 && is_forward(product) && product.batch <= 1 &&
         product.m <= kFewRows;
}

double product_seconds(const Kernel& kernel, const work::Product& product, const DeviceSpec& device,
                       const ProductRates& rates) {
  const auto m = static_cast<double>(product.m), n = static_cast<double>(product.n);
  const auto k = static_cast<double>(product.k);
  const double batch = std::max<double>(1, static_cast<double>(product.batch));
  const double multiprocessors = device.multiprocessors;
  const bool in_half = size_of(kernel.dtype) == 2 && share_of_float32(kernel, device) == 0;
  const double of_layout = efficiency(product, rates);
  const double aligned = alignment_share(kernel, product, in_half, of_layout, device, rates);
  const double peak = sustained_flops(kernel, device) * of_layout * aligned;
  const double bytes_per_second = rates.bandwidth * device.memory_bandwidth_bytes_per_second;
  if (m <= 0 || n <= 0 || k <= 0) return rates.launch_us * kMicrosecond;
  if (is_few_float32_rows(kernel, product)) return few_rows_seconds(product, kernel.bytes, device);
  if (is_tiny(m, n, batch, in_half) && multiprocessors > 0) {
    return rates.launch_us * kMicrosecond +
           std::max(tiny_products_seconds(m, n, k, batch, multiprocessors, in_half), kernel.bytes / bytes_per_second);
  }
  if (in_half && is_forward(product) && batch > 1 && (product.m == 1 || product.n == 1)) {
    return many_vectors_seconds(kernel.bytes, device.memory_bandwidth_bytes_per_second);
  }
  double best = std::numeric_limits<double>::max();
  for (const Tile& tile : kTiles) {
    const double tiles = ceil_of(m, tile.rows) * ceil_of(n, tile.columns) * batch;
    const double loss = 1 + rates.narrow * (128 / tile.rows + 128 / tile.columns - 1.5);
    for (const double split : kSplits) {
      if (split > 1 && k / split < 256) break;
      const double waves = tiles * split / multiprocessors;
      const double whole = std::max(1.0, waves + rates.ragged * (std::ceil(waves) - waves));
      const double tile_flops = 2 * tile.rows * tile.columns * k / split;
      const double computed = whole * (rates.tile_us * kMicrosecond + tile_flops * loss * multiprocessors / peak);
      // Each split leaves partial sums in float32 that are read again.
      const double partial =
          split > 1 ? 8 * split * m * n * batch / bytes_per_second + rates.launch_us * kMicrosecond : 0;
      best = std::min(best, computed + partial);
    }
  }
  const bool is_small = std::min(m, n) <= kSmall.side;
  if (batch > 1 && (is_small || std::max(m, n) <= kMiddle.side)) {
    best =
        std::min(best, small_products_seconds(is_small ? kSmall : kMiddle, m, n, k, batch, multiprocessors, in_half));
  }
  const double seconds = rates.launch_us * kMicrosecond + std::max(best, kernel.bytes / bytes_per_second);
  constexpr double kThin = 64;
  const bool passes_once = in_half && batch == 1 && std::min(m, n) <= kThin && m * n < n * k + m * k;
  if (!passes_once || aligned < 1) return seconds;
  return std::min(seconds, passed_once_seconds(kernel.bytes, device.memory_bandwidth_bytes_per_second));
}

}  // namespace memcalc
