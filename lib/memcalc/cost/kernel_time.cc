// MIRRORS(torch, "cuda/Embedding.cu", "2.11.0")
#include "memcalc/cost/kernel_time.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <variant>

#include "memcalc/base/bytes.h"
#include "memcalc/base/seconds.h"
#include "memcalc/cost/convolution_times.h"
#include "memcalc/cost/host_time.h"
#include "memcalc/cost/interpolation.h"
#include "memcalc/cost/measured_card.h"
#include "memcalc/cost/product_times.h"
#include "memcalc/cost/published_times.h"
#include "memcalc/cost/regions.h"
#include "memcalc/cost/selection_time.h"
#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/compiled_code.h"
#include "memcalc/symbolic/shard_copies.h"
#include "memcalc/symbolic/vector_quantize.h"

namespace memcalc {

// CUDA C++ Programming Guide, "Compute Capabilities": tensor cores from 7.0 on, their 8-bit integers from 7.2, their
// bfloat16 and TF32 from 8.0. (The GTX 16 of 7.5 have none: no spec is one of them.)
bool has_tensor_cores(const DeviceSpec& device) {
  return !is_cuda(device) || architecture_of(device) >= CudaArchitecture::kVolta;
}

bool has_int8_tensor_cores(const DeviceSpec& device) {
  return !is_cuda(device) || architecture_of(device) >= CudaArchitecture::kXavier;
}

bool computes_tf32(const DeviceSpec& device) {
  return is_cuda(device) ? architecture_of(device) >= CudaArchitecture::kAmpere : device.tf32_flops_per_second > 0;
}

bool emulates_bfloat16(const DeviceSpec& device) {
  return is_cuda(device) && architecture_of(device) < CudaArchitecture::kAmpere;
}

bool allows_tf32(const Kernel& kernel) {
  if (const auto* product = kernel.as<work::Product>()) return product->tf32;
  const auto* convolution = kernel.as<work::Convolution>();
  return convolution != nullptr && convolution->tf32;
}

bool uses_tensor_cores(const Kernel& kernel, const DeviceSpec& device) {
  switch (kernel.kind) {
    case KernelKind::kMatrixProduct:
    case KernelKind::kGroupedProduct:
    case KernelKind::kConvolution:
    case KernelKind::kCudnnAttention:
    case KernelKind::kFlashAttention:
    case KernelKind::kEfficientAttention: break;
    default: return false;
  }
  if (kernel.dtype == DType::kBFloat16) return !emulates_bfloat16(device);
  if (kernel.dtype == DType::kFloat16) return has_tensor_cores(device);
  if (size_of(kernel.dtype) == 1) return has_int8_tensor_cores(device);
  return allows_tf32(kernel) && computes_tf32(device);
}

double share_of_float32(const Kernel& kernel, const DeviceSpec& device) {
  if (kernel.dtype == DType::kBFloat16 && emulates_bfloat16(device)) return device.product_shares.bf16_over_float32;
  if (kernel.dtype == DType::kFloat16 && !has_tensor_cores(device)) return device.product_shares.fp16_over_float32;
  return 0;
}

double peak_flops(const Kernel& kernel, const DeviceSpec& device) {
  if (share_of_float32(kernel, device) > 0) return device.fp32_flops_per_second;
  if (kernel.dtype == DType::kBFloat16) return device.bf16_flops_per_second;
  if (kernel.dtype == DType::kFloat16) return device.fp16_flops_per_second;
  // Products of 8-bit integers run at least at the 16-bit rate.
  if (size_of(kernel.dtype) == 1) return std::max(device.fp16_flops_per_second, device.bf16_flops_per_second);
  return allows_tf32(kernel) && computes_tf32(device) ? device.tf32_flops_per_second : device.fp32_flops_per_second;
}

double sustained_flops(const Kernel& kernel, const DeviceSpec& device) {
  const ProductShares& shares = device.product_shares;
  if (const double share = share_of_float32(kernel, device); share > 0) {
    return share * shares.float32 * device.fp32_flops_per_second;
  }
  const double share = size_of(kernel.dtype) < 4                      ? shares.half
                       : allows_tf32(kernel) && computes_tf32(device) ? shares.tf32
                                                                      : shares.float32;
  return share * peak_flops(kernel, device);
}

double memory_seconds(const Kernel& kernel, const DeviceSpec& device, const MemoryRates& rates) {
  const double moved = kernel.bytes / (rates.bandwidth * device.memory_bandwidth_bytes_per_second);
  const double computed = kernel.elements / (rates.elements * device.fp32_flops_per_second);
  return rates.launch_us * kMicrosecond * kernel.launches + std::max(moved, computed);
}

namespace {

/// cuda/EmbeddingBackwardKernel.cu where many indices share few rows: rows are summed ten at a time, and one thread
/// counts all tens of an index, one after the other, in two kernels (krn_partial_segment_offset,
/// krn_partial_to_segment_idx). Position biases of T5 have 32 rows, of which the farthest has 0.37 to 0.5 of all pairs
/// of positions; token types are one. Of 11 on H200s (tests/measured/step_operators_h200.jsonl.gz) half are within 8 %.
double few_rows_seconds(const work::EmbeddingGradient& gradient, const DeviceSpec& device) {
  constexpr double kSortUs = 64, kNumberNs = 0.07, kSharedNs = 1.26, kFarthest = 0.45;
  constexpr double kAddedPerSecond = 0.5e12, kNarrowAddedPerSecond = 0.19e12;  // in warps of 32
  constexpr std::int64_t kWarp = 32;
  const auto indices = static_cast<double>(gradient.indices);
  const double shared = gradient.table_rows <= 2 ? indices : kFarthest * indices;
  const auto columns = static_cast<double>(round_up(gradient.width, kWarp));
  const double per_second = gradient.width <= kWarp ? kNarrowAddedPerSecond : kAddedPerSecond;
  const double added = indices * columns * kMeasuredMultiprocessors / (per_second * device.multiprocessors);
  return kSortUs * kMicrosecond + (indices * kNumberNs + shared * kSharedNs) * kNanosecond + added;
}

}  // namespace

// cuda/Embedding.cu: few indices are scattered by one kernel; many are sorted first and summed by segments. The table
// of gradients is zeroed before.
double embedding_seconds(const Kernel& kernel, const work::EmbeddingGradient& gradient, const DeviceSpec& device,
                         const DeviceRates& rates) {
  constexpr std::int64_t kSortAbove = 3072, kFewRows = 64;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  Kernel zeros = kernel;
  zeros.bytes = real(gradient.table_rows) * real(gradient.width) * real(size_of(kernel.dtype));
  zeros.elements = real(gradient.table_rows) * real(gradient.width);
  const double zeroing = memory_seconds(zeros, device, rates.vectorized);
  if (gradient.indices <= kSortAbove)
    return zeroing + rates.embedding.scatter_us * kMicrosecond * real(gradient.indices);
  if (gradient.table_rows <= kFewRows) return zeroing + few_rows_seconds(gradient, device);
  return zeroing + rates.embedding.sort_us * kMicrosecond +
         real(gradient.indices) * real(gradient.width) / (rates.embedding.elements * device.fp32_flops_per_second);
}

namespace {

/// Pooling and interpolation, beside batch norm.
bool is_of_windows(const Kernel& kernel) {
  const std::string_view name = kernel.op != nullptr ? kernel.op->name : std::string_view();
  return name.find("pool") != std::string_view::npos || name.find("upsample") != std::string_view::npos;
}

// Of an H100, 2026-11-26: tests/measured/operator_times_h100.jsonl.gz
constexpr double kGatheredRowNs = 0.62;
constexpr double kChannelSumUs = 5;
constexpr double kRolledPerSecond = 2.05e11;  // elements: an index calculation each; an H200's, too
constexpr double kGroupElementNs = 0.83, kHalfGroupElementNs = 0.55;  // of a group that one block goes over

/// cuda/group_norm_kernel.cu: moments by a block a group, factors, the image; backward: sums by a block a channel,
/// factors, the image, the gradients of weight and bias.
double group_norm_seconds(const Kernel& kernel, const work::Rows& rows, const DeviceSpec& device,
                          const DeviceRates& rates) {
  const double others = rows.backward ? 5 : 3;  // launches beside that of the image
  const double element_ns = is_half(kernel.dtype) ? kHalfGroupElementNs : kGroupElementNs;
  const double chain = rows.backward ? 0 : static_cast<double>(rows.width) * element_ns * kNanosecond;
  return others * rates.rowwise.launch_us * kMicrosecond +
         std::max(chain, memory_seconds(kernel, device, rates.vectorized));
}

/// Of the rate at which a kernel over strided operands calculates an index for each element.
double index_share(const Kernel& kernel) {
  constexpr double kTurnedShare = 0.42, kWideTurnedShare = 0.4, kJoinedShare = 0.64, kJoinedByHalfShare = 0.45;
  const bool wide = size_of(kernel.dtype) >= 4, turned = kernel.kind == KernelKind::kTurned;
  // Parts that are not contiguous (cuda/Shape.cu, CatArrayBatchedCopy): 0.23 T elements a second; 0.16 where half of
  // the blocks have nothing to do, as where transformers' caches begin and, of a fused projection, grow.
  if (kernel.op == &aten::kCat) return turned ? kJoinedByHalfShare : kJoinedShare;
  // T5's position biases, whose heads lie innermost, so that a line of the cache serves all of them: 0.20 to 0.25 T
  // with 6, 12 and 16 heads (step_operators_h200.jsonl.gz).
  constexpr double kAddedTurnedShare = 0.63;
  if (turned && wide && kernel.op == &aten::kAddInPlace) return kAddedTurnedShare;
  if (turned) return wide ? kWideTurnedShare : kTurnedShare;  // a matrix: 0.15 and 0.14 T
  // What is read and written, over the result: tells what the operands are.
  constexpr double kRepeated = 1.45, kConverted = 1.75, kTwoOperands = 2.5;
  const double bytes = kernel.bytes / (kernel.elements * static_cast<double>(size_of(kernel.dtype)));
  // Repeated ones alone: 0.425 T of one that is divided by a number (a mean's gradient), 0.335 of two (mamba2 on an
  // H100, network_profiles_h100.jsonl.gz).
  constexpr double kOneRepeatedShare = 1.17, kTwoRepeatedShare = 0.96;
  if (wide && bytes < kRepeated) return kernel.op == &aten::kDiv ? kOneRepeatedShare : kTwoRepeatedShare;
  // One of 16 bits in a result of 32 is converted as it is read (legacy_launch of gpu_kernel_impl). Of 16 of an H200
  // (step_operators_h200.jsonl.gz): 0.19 to 0.25 T.
  constexpr double kConvertedShare = 0.6, kTwoOperandsShare = 0.9;
  if (wide && bytes < kConverted) return kConvertedShare;
  return bytes > kTwoOperands ? kTwoOperandsShare : 1;
}

/// cuda/CUDALoops.cuh, gpu_kernel_impl: an index calculation for each element decides in 16 bits, 0.35 to 0.38 T
/// elements a second on an H100 and on an H200 (tests/measured/operator_times_h100.jsonl.gz, op_times_h200.jsonl); in
/// float32 the bytes do, at a share of the memory's rate.
double strided_seconds(const Kernel& kernel, const DeviceSpec& device, const MemoryRates& rates) {
  const double moved = kernel.bytes / (rates.bandwidth * device.memory_bandwidth_bytes_per_second);
  const double indexed = kernel.elements / (index_share(kernel) * rates.elements * device.fp32_flops_per_second);
  return rates.launch_us * kMicrosecond * kernel.launches + std::max(moved, indexed);
}

/// cuda/CUDALoops.cuh, unrolled_elementwise_kernel: an operand of 16 bits and a result of 32 decide; what is read
/// beside them goes at the memory's rate (the median of 78 with two operands on an H200 3.9 ps an element, of 220
/// copies 2.9; of 11 on an H100 4.5 and 3.1: step_operators_h200.jsonl.gz, network_operators_h100.jsonl.gz).
double converting_seconds(const Kernel& kernel, const DeviceSpec& device, const MemoryRates& rates) {
  constexpr double kConverted = 6, kShare = 0.86;  // bytes of an element; of the memory's rate
  Kernel one = kernel;
  one.bytes = std::min(kernel.bytes, kConverted * kernel.elements);
  const double beside = kernel.bytes - one.bytes;
  return memory_seconds(one, device, rates) + beside / (kShare * device.memory_bandwidth_bytes_per_second);
}

/// Elements a second that a multiprocessor computes of such a function, of 132 ones: 16 bits are bound by it where
/// memory is as fast as an H200's (tests/measured/op_times_h200.jsonl). 0: memory decides. Of kVectorQuantize, a block
/// a row: 16,000 rows of 1,024 to 8,192 in 213 us on an H200 (rows_inference_times_h200.jsonl, after its calls). Of
/// bitsandbytes' updates 17 and 268 million elements in float32 and bfloat16 alike (optimizer_times_h200.jsonl).
double computed_per_second(const Kernel& kernel) {
  const Operator* const op = kernel.op;
  if (op == &aten::kGelu) return 0.78e12;
  if (op == &aten::kGeluBackward) return 0.58e12;
  if (op == &aten::kSilu) return 0.97e12;
  if (op == &aten::kSiluBackward) return 0.7e12;
  if (op == &kVectorQuantize) return 0.285e12;
  if (op == &kUpdate32bit) return 0.094e12;
  if (op == &kUpdate8bit) return 0.038e12;
  if (op == &kUpdate8bitOneState) return 0.063e12;
  if (op == &kPrefetch) return 1.05e12;
  return op == &aten::kCos ? 0.86e12 : 0;
}

/// cuda/layer_norm_kernel.cu, layer_norm_grad_input_kernel_vectorized: of 78 kernels on an H200 and 200 on an H100
/// (step_operators_h200.jsonl.gz, network_operators_h100.jsonl.gz and the others of H100s) half are within 9 %. In 16
/// bits what is computed decides.
double layer_norm_gradient_seconds(const Kernel& kernel, double rows, const DeviceSpec& device) {
  constexpr double kLaunchUs = 2.5, kRowNs = 0.84, kShare = 0.87, kPerSecond = 0.48e12;
  const double moved = kernel.bytes / (kShare * device.memory_bandwidth_bytes_per_second);
  const double computed = kernel.elements * kMeasuredMultiprocessors / (kPerSecond * device.multiprocessors);
  const double at_once = std::max(moved, is_half(kernel.dtype) ? computed : 0);
  return kLaunchUs * kMicrosecond + std::hypot(at_once, rows * kRowNs * kNanosecond);
}

/// cuda/layer_norm_kernel.cu, vectorized_layer_norm_kernel: a block a row, and memory; in 16 bits what is computed
/// decides. Of 89 on H200s half are within 3 % (bytes and rows by their hypotenuse: 7), of 136 on H100s within 8
/// (step_operators_h200.jsonl.gz, network_operators_h100.jsonl.gz and the others of H100s, 2026-11-30).
double layer_norm_seconds(const Kernel& kernel, const work::Rows& rows, const DeviceSpec& device) {
  constexpr double kLeastUs = 4.2, kLaunchUs = 2, kRowNs = 1.3, kHalfRowNs = 1, kShare = 0.875, kValuePs = 1.42;
  constexpr double kPicosecond = 1e-12;
  const auto count = static_cast<double>(rows.count), values = count * static_cast<double>(rows.width);
  const bool half = is_half(kernel.dtype);
  const double slower = kMeasuredMultiprocessors / device.multiprocessors;
  const double moved =
      2 * values * static_cast<double>(size_of(kernel.dtype)) / (kShare * device.memory_bandwidth_bytes_per_second);
  const double computed = half ? values * kValuePs * kPicosecond * slower : 0;
  const double blocks = count * (half ? kHalfRowNs : kRowNs) * kNanosecond * slower;
  return std::max(kLeastUs * kMicrosecond, kLaunchUs * kMicrosecond + blocks + std::max(moved, computed));
}

/// cuda/Reduce.cuh over the innermost dimension: a warp goes over a row of up to 8,192 values, four of each lane at a
/// time (vt0). Memory decides where rows are many and long, what a warp does for each where they are many and short,
/// the chain of one where they are few. Of 275 sums and means in profiled steps of an H200
/// (step_operators_h200.jsonl.gz).
double row_sum_seconds(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates) {
  constexpr double kLaunchUs = 2, kRowNs = 0.13, kLoadNs = 0.11, kAtOnce = 4 * 32, kChainNs = 1.62;
  constexpr double kByteLoadNs = 0.07;  // booleans (all of _safe_softmax)
  constexpr double kByWarp = 8192;
  const double moved = memory_seconds(kernel, device, rates.row_sum);
  const auto rows = static_cast<double>(column_sums(kernel));
  if (rows == 0) return moved;
  const double width = kernel.elements / rows;
  if (width > kByWarp) return moved;
  const double load_ns = size_of(kernel.dtype) == 1 ? kByteLoadNs : kLoadNs;
  const double all =
      rows * (kRowNs + std::ceil(width / kAtOnce) * load_ns) * kMeasuredMultiprocessors / device.multiprocessors;
  return std::max(moved, kLaunchUs * kMicrosecond + std::max(all, width * kChainNs) * kNanosecond);
}

/// The gradient of a convolution's bias: cuda/Reduce.cuh sums planes of all images, each in pieces.
double channel_sum_seconds(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates) {
  constexpr double kShare = 0.75, kHalfShare = 0.45;  // of the rate of rows
  MemoryRates of = rates.row_sum;
  of.launch_us += kChannelSumUs;
  of.bandwidth *= is_half(kernel.dtype) ? kHalfShare : kShare;
  return memory_seconds(kernel, device, of);
}

}  // namespace

// cuda/layer_norm_kernel.cu: a block goes over a row; the gradients of weight and bias over all rows of some columns,
// but for many rows by blocks of them (LaunchGammaBetaBackwardCUDAKernel).
double rows_seconds(const Kernel& kernel, const work::Rows& rows, const DeviceSpec& device, const DeviceRates& rates) {
  constexpr std::int64_t kChainedRows = 65536;
  const auto count = static_cast<double>(rows.count);
  const BlockRates& blocks = rates.blocks;
  const bool groups = kernel.op == &aten::kNativeGroupNorm || kernel.op == &aten::kNativeGroupNormBackward;
  if (groups && kernel.kind == KernelKind::kRowwise) return group_norm_seconds(kernel, rows, device, rates);
  if (kernel.kind == KernelKind::kStrided) {
    // cuda/IndexKernelUtils.cu, vectorized_gather_kernel: a block a row; cuda/Indexing.cu, indexing_backward_kernel: a
    // warp.
    // Long rows go at a copy's rate: 4,096 of 4 KB in 8.6 us (tests/measured/expert_operators_h100.jsonl.gz), 38,809 of
    // 8 KB in 163 us.
    return std::max(memory_seconds(kernel, device, rates.vectorized), count * kGatheredRowNs * kNanosecond);
  }
  if (kernel.kind == KernelKind::kImage) return batch_norm_seconds(kernel, rows, device, rates);
  if (kernel.op == &aten::kNativeLayerNormBackward && kernel.kind == KernelKind::kRowwise) {
    return layer_norm_gradient_seconds(kernel, count, device);
  }
  if (kernel.op == &aten::kNativeLayerNorm && kernel.kind == KernelKind::kRowwise) {
    return layer_norm_seconds(kernel, rows, device);
  }
  const double by_memory = memory_seconds(kernel, device, memory_rates(kernel, rates));
  if (kernel.kind == KernelKind::kColumnSum) {
    return rows.count <= kChainedRows ? std::max(by_memory, count * blocks.chain_ns * kNanosecond) : by_memory;
  }
  return kernel.kind == KernelKind::kRowwise ? std::hypot(by_memory, count * blocks.row_ns * kNanosecond) : by_memory;
}

// cuda/DilatedMaxPool2d.cu, AveragePool2d.cu, AdaptiveAveragePooling.cu: index calculations decide, not memory.
double pooling_seconds(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates) {
  const std::string_view name = kernel.op->name;
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  const BlockRates& blocks = rates.blocks;
  const double rate = has("adaptive")    ? blocks.adaptive_per_second
                      : !has("backward") ? blocks.pooled_per_second
                      : has("max")       ? blocks.max_pooled_per_second
                                         : blocks.mean_pooled_per_second;
  return std::max(memory_seconds(kernel, device, rates.pooling), kernel.elements / rate);
}

const MemoryRates& memory_rates(const Kernel& kernel, const DeviceRates& rates) {
  switch (kernel.kind) {
    case KernelKind::kConverting: return rates.converting;
    case KernelKind::kStrided:
    case KernelKind::kTurned: return rates.strided;
    case KernelKind::kRandom: return rates.random;
    case KernelKind::kRowwise: return rates.rowwise;
    case KernelKind::kRowSum: return rates.row_sum;
    case KernelKind::kColumnSum: return rates.column_sum;
    case KernelKind::kImage: return is_of_windows(kernel) ? rates.pooling : rates.image;

    case KernelKind::kIndexed: return rates.indexed;
    case KernelKind::kMultiTensor: return rates.multi_tensor;
    default: return rates.vectorized;
  }
}

const ProductRates& product_rates(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates) {
  if (share_of_float32(kernel, device) > 0) return rates.float32;
  if (is_half(kernel.dtype) || size_of(kernel.dtype) == 1) return rates.half;
  return allows_tf32(kernel) && computes_tf32(device) ? rates.tf32 : rates.float32;
}

const AttentionRates& attention_rates(const Kernel& kernel, const DeviceRates& rates) {
  switch (kernel.kind) {
    case KernelKind::kCudnnAttention: return rates.cudnn;
    case KernelKind::kFlashAttention: return rates.flash;
    default: return is_half(kernel.dtype) ? rates.efficient : rates.efficient_float32;
  }
}

const ConvolutionRates& convolution_rates(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates) {
  if (is_half(kernel.dtype)) return rates.convolution_half;
  return allows_tf32(kernel) && computes_tf32(device) ? rates.convolution_tf32 : rates.convolution_float32;
}

namespace {

// cutlass's grouped kernel: this share of a product's rate, and what it prepares. Of an H200, 21 shapes of 8 to 128
// equal groups of 64 to 4,096 rows, forward and both gradients (tests/measured/op_times_h200.jsonl). In profiled steps
// of an H100, whose groups are not equal, 0.51 to 0.88 of the rate was left (expert_operators_h100.jsonl.gz).
constexpr double kGroupedShare = 0.96, kGroupedUs = 20;
// Of layers of experts in profiled steps of an H100, 2026-11-27: tests/measured/expert_operators_h100.jsonl.gz
constexpr double kSmallSortUs = 28;  // one block sorts: radixSortKVInPlace
// Of a pass of cub's sort, an H200's (step_operators_h200.jsonl.gz: 4,608 keys of eight bytes 45 us, 98,304 65).
constexpr double kPassUs = 3.5, kPassElementNs = 0.016;

/// bitsandbytes 0.50, gemm_4bit_simt (a thread's sums for each row) and gemm_4bit_sm80 (tensor cores): an H100 takes so
/// long for each 4-bit element, 2026-11-27: tests/measured/inference_parts_h100.jsonl
double packed_product_seconds(const work::Product& product, const DeviceSpec& device) {
  constexpr double kLaunchUs = 2.3, kReadPs = 0.25, kRowPs = 0.25, kTensorCoresPs = 1.13, kBytesPerSecond = 3.35e12;
  const double picoseconds = std::min(kReadPs + kRowPs * static_cast<double>(product.m), kTensorCoresPs);
  const double elements = static_cast<double>(product.n) * static_cast<double>(product.k);
  return kLaunchUs * kMicrosecond +
         elements * picoseconds * 1e-12 * kBytesPerSecond / device.memory_bandwidth_bytes_per_second;
}

/// cuda/Indexing.cu, index_put_with_sort_kernel: indices are made linear by four small kernels and sorted, by one block
/// or 8 bits at a pass; then a warp adds the rows of a place, one after the other (480 of 1,024 and of 2,048 to each of
/// eight biases of experts took 644 and 821 us on an H100, 53 of twelve to each of 729 relative positions 42). Memory
/// decides in float32, which reads and writes each place beside the rows, and what multiprocessors add where rows share
/// a place or have 16 bits. Of 45 shapes of an H200 and an H100, half within 6 %
/// (tests/measured/step_operators_h200.jsonl.gz, step_operators_h100.jsonl.gz).
double sorted_put_seconds(const Kernel& kernel, const work::EmbeddingGradient& gradient, const DeviceSpec& device) {
  constexpr double kIndicesUs = 6, kOneBlockUs = 4.5, kPassUs = 12, kRowUs = 1.5, kNarrowRowUs = 0.8;
  constexpr double kSumUs = 2, kNumberNs = 0.21, kShare = 0.8, kAddedPerSecond = 0.44e12;
  constexpr std::int64_t kNarrow = 32, kOneBlock = 2304;  // cub's SingleTilePolicy
  const std::int64_t places = std::max<std::int64_t>(gradient.table_rows, 1);
  const auto rows = static_cast<double>(gradient.indices), width = static_cast<double>(gradient.width);
  const auto bits = std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(places - 1, 1)));
  const double sort = gradient.indices <= kOneBlock ? kOneBlockUs : kPassUs * std::ceil(bits / 8.0);
  const double before = (kIndicesUs + sort + kSumUs) * kMicrosecond;
  if (gradient.width == 1) return before + rows * kNumberNs * kNanosecond;  // warps sum together
  const double touched = std::min(rows, static_cast<double>(places));
  const double moved = (rows + 2 * touched) * width * static_cast<double>(size_of(kernel.dtype)) /
                       (kShare * device.memory_bandwidth_bytes_per_second);
  const double added = rows * width * kMeasuredMultiprocessors / (kAddedPerSecond * device.multiprocessors);
  const double row_us = gradient.width <= kNarrow ? kNarrowRowUs : kRowUs;
  const double chain = std::max(rows / static_cast<double>(places) - 1, 0.0) * row_us * kMicrosecond;
  return before + std::max(moved, added) + chain;
}

/// cuda/MultiTensorApply.cuh: a launch takes as many tensors as its arguments hold, and blocks of 65,536 elements, so
/// that lists of many small tensors leave multiprocessors idle. Of AdamW's lists in 32 profiled steps of an H100,
/// 2026-11-28 (11 to 649 tensors, 0.2 to 1,154 million parameters; tests/measured/step_operators_h100.jsonl.gz): what
/// each tensor adds to a pass; 16 bits reach a smaller share of the memory's rate than float32. On an H200 float32
/// reaches the same share, 3.39 TB/s, and 16 bits 2.89, which is what multiprocessors then move (five lists of 0.4
/// to 2.5 billion parameters each, 2026-11-29; tests/measured/step_operators_h200.jsonl.gz).
double list_seconds(const Kernel& kernel, const work::TensorList& list, const DeviceSpec& device,
                    const DeviceRates& rates) {
  constexpr double kTensorUs = 0.06, kHalfShare = 0.945, kHalfBytesPerMultiprocessor = 2.89e12 / 132;
  Kernel moved = kernel;
  double computed = 0;
  if (is_half(kernel.dtype)) {
    moved.bytes /= kHalfShare;
    computed = kernel.bytes / (kHalfBytesPerMultiprocessor * device.multiprocessors);
  }
  return std::max(memory_seconds(moved, device, rates.multi_tensor), computed) +
         static_cast<double>(list.tensors) * list_passes(kernel) * kTensorUs * kMicrosecond;
}

/// FSDP2's two copies of one kernel each: shares of the memory's rate and microseconds before it, of 17 kinds beside no
/// collective, 50 MB to 4.2 GB, on two H200s' machines (tests/measured/two_cards_timelines_h200.jsonl.gz; within 4 %).
/// chunk_cat that changes the type, 0.40 times, is a conversion.
double shard_copy_seconds(const Kernel& kernel, const DeviceSpec& device) {
  const bool split = kernel.op == &kSplitWithSizesCopy;
  const double share = split ? 0.828 : 0.724, before_us = split ? 1 : 2.4;
  return kernel.bytes / (share * device.memory_bandwidth_bytes_per_second) + before_us * kMicrosecond;
}

/// cuda/Reduce.cuh in an optimizer that loops over its parameters: one number of all elements, which one block of 512
/// threads goes over below 256 values a thread, all multiprocessors above, or a mean of each row. Of 60 shapes in four
/// profiled steps of an H200 with Adafactor, 2026-11-29 (tests/measured/step_operators_h200.jsonl.gz).
double looped_sum_seconds(const Kernel& kernel, const DeviceSpec& device) {
  constexpr double kSplitAbove = 512 * 256, kBlockUs = 1.7, kValueNs = 0.205, kSplitUs = 5.5, kRowsUs = 2.5;
  constexpr double kShare = 0.8, kRowShare = 0.7;
  const double bytes_per_second = device.memory_bandwidth_bytes_per_second;
  if (kernel.elements < kSplitAbove) return kBlockUs * kMicrosecond + kernel.elements * kValueNs * kNanosecond;
  const bool to_one = kernel.op == &aten::kLinalgVectorNorm;
  return (to_one ? kSplitUs : kRowsUs) * kMicrosecond +
         kernel.bytes / ((to_one ? kShare : kRowShare) * bytes_per_second);
}

/// A product for each expert, whose tokens are not as many: of random weights their number varied by 7 to 35 %
/// (standard deviation) among 16 experts (steps of an H200, tests/measured/step_operators_h200.jsonl.gz), so that the
/// last wave of tiles is now full, now nearly empty. The mean of five in equal parts of a normal distribution.
double uneven_groups_seconds(const Kernel& kernel, const work::Product& product, const DeviceSpec& device,
                             const DeviceRates& rates, const ProductRates& of_type) {
  constexpr double kSpread = 0.25;
  constexpr std::array<double, 5> kQuantiles = {-1.282, -0.524, 0, 0.524, 1.282};
  const auto groups = static_cast<double>(product.batch);
  double seconds = 0;
  for (const double quantile : kQuantiles) {
    Kernel one = kernel;
    work::Product of_group = product;
    of_group.batch = 1;
    one.bytes /= groups;
    std::int64_t& rows = product.transposed == Transposed::kFirst ? of_group.k : of_group.m;
    rows = std::max<std::int64_t>(std::llround(static_cast<double>(rows) * (1 + kSpread * quantile)), 1);
    seconds += measured_product_ratio(one, of_group, device, rates) * product_seconds(one, of_group, device, of_type);
  }
  return groups * seconds / static_cast<double>(kQuantiles.size());
}

/// Float8's products, whose kernels are told by what they compute in beside them: an H100 reaches 1,403 TFLOP/s in 8
/// bits where it reaches 794.5 in bfloat16 (stas00/ml-engineering compute/accelerator/README.md, revision of 2026-08,
/// MAMF). Ada's and Hopper's cards, and later ones, are assumed to gain as much.
ProductRates float8_rates(ProductRates rates, const DeviceSpec& device) {
  constexpr double kFaster = 1402.6 / 794.5;
  if (architecture_of(device) < CudaArchitecture::kAda) return rates;
  for (double* const share : {&rates.plain, &rates.first, &rates.second}) *share *= kFaster;
  return rates;
}

// Of TransformerEngine 2.11 on a B200, as SimuMax published them (configs/system/b200_bf16_ceperm.json, 2026-05):
// shares of the memory's datasheet rate (8 TB/s there, 7.7 in our file); other cards are assumed to reach the same.
constexpr double kPermuteShare = 0.52;
constexpr double kEngineLossShare = 0.436, kEngineLossBackwardShare = 0.29;  // triton/cross_entropy.py

/// gemm/cublaslt_gemm.cu, multi_stream_cublas_gemm: a product for each group, on four streams. Least squares over
/// SimuMax's 108 (16 shapes of 128 to 9,832 rows a group, forward and both gradients): half are within 9 %, without the
/// two terms 19 % too short. What is read and written of the buffer of gradients is hidden but for a share.
double engine_groups_seconds(const Kernel& kernel, const work::Product& product, const DeviceSpec& device,
                             const ProductRates& rates) {
  constexpr double kGroupUs = 4.7, kExposed = 0.14;
  Kernel unread = kernel;
  unread.bytes = 0;
  const double bytes_per_second = rates.bandwidth * device.memory_bandwidth_bytes_per_second;
  const double computed = product_seconds(unread, product, device, rates) +
                          static_cast<double>(product.batch) * kGroupUs * kMicrosecond +
                          kExposed * product.accumulated_bytes / bytes_per_second;
  return std::max(computed, kernel.bytes / bytes_per_second);
}

/// What its bytes take at a share of the memory's rate; 0: an operator that has none.
double published_share_seconds(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates) {
  if (kernel.op == nullptr) return 0;
  const std::string_view name = kernel.op->name;
  const double share = name == "transformer_engine::permute_with_mask_map" ? kPermuteShare
                       : name != "transformer_engine::cross_entropy"       ? 0
                       : kernel.phase == Phase::kBackward                  ? kEngineLossBackwardShare
                                                                           : kEngineLossShare;
  if (share == 0) return 0;
  return rates.vectorized.launch_us * kMicrosecond + kernel.bytes / (share * device.memory_bandwidth_bytes_per_second);
}

/// Triton's kernels of a compiled graph: bytes, or the instructions of all lanes. Seven whose machine code was counted
/// issue 0.69 to 0.81 of what four schedulers of a multiprocessor can (step_operators_h200.jsonl.gz).
double fused_seconds(const Kernel& kernel, const DeviceSpec& device, const MemoryRates& rates) {
  constexpr double kIssued = 0.8 / 2;  // of the datasheet's float32 FLOP/s, two an instruction
  // Few blocks go over the rows, one after the other: 2.6 to 3.1 TB/s of an H200, where others reach 4.0 to 4.2.
  constexpr double kBothWays = 0.7;
  const double bandwidth = rates.bandwidth * (kernel.op == &kFusedBothWays ? kBothWays : 1);
  const double moved = kernel.bytes / (bandwidth * device.memory_bandwidth_bytes_per_second);
  const double issued = kernel.elements / (kIssued * device.fp32_flops_per_second);
  return rates.launch_us * kMicrosecond * kernel.launches + std::max(moved, issued);
}

/// Its seconds by the model of what it works on; where that has none, by what it reads and writes.
struct SecondsOf {
  const Kernel& kernel;
  const DeviceSpec& device;
  const DeviceRates& rates;

  double operator()(const work::Product& product) const {
    if (kernel.op != nullptr && std::string_view(kernel.op->name) == "bitsandbytes::gemm_4bit") {
      return packed_product_seconds(product, device);
    }
    const ProductRates& of_type = product_rates(kernel, device, rates);
    if (kernel.op == &aten::kScaledMm) {
      return product_seconds(kernel, product, device, float8_rates(of_type, device));
    }
    const bool by_engine =
        kernel.op != nullptr && std::string_view(kernel.op->name) == "transformer_engine::te_general_grouped_gemm";
    if (kernel.kind != KernelKind::kGroupedProduct || (product.batch == 1 && !by_engine)) {
      const double ratio =
          published_ratio(kernel, product, device, rates) * measured_product_ratio(kernel, product, device, rates);
      return ratio * product_seconds(kernel, product, device, of_type);
    }
    if (kernel.launches == product.batch && product.batch > 1) {  // cuBLAS multiplies a group after the other
      return uneven_groups_seconds(kernel, product, device, rates, of_type);
    }
    if (by_engine) {
      return engine_groups_seconds(kernel, product, device, of_type);
    }
    const double seconds = product_seconds(kernel, product, device, of_type);
    return kernel.op == &aten::kGroupedMm ? seconds / kGroupedShare + kGroupedUs * kMicrosecond : seconds;
  }
  double operator()(const work::Attention& attention) const {
    return published_ratio(kernel, attention, device, rates) *
           attention_seconds(kernel, attention, device, attention_rates(kernel, rates));
  }
  double operator()(const work::Convolution& convolution) const {
    if (kernel.kind == KernelKind::kDepthwiseConvolution) return own_depthwise_seconds(kernel, convolution, device);
    if (rates.convolution_times.empty()) {
      return is_depthwise(convolution)
                 ? depthwise_seconds(kernel, convolution, device, rates)
                 : convolution_seconds(kernel, convolution, device, convolution_rates(kernel, device, rates));
    }
    if (is_depthwise(convolution)) return depthwise_seconds(kernel, convolution, device, rates);
    return measured_convolution_seconds(kernel, convolution, device, rates);
  }
  double operator()(const work::EmbeddingGradient& gradient) const {
    if (kernel.op == &aten::kIndexPutImpl) return sorted_put_seconds(kernel, gradient, device);
    return embedding_seconds(kernel, gradient, device, rates);
  }
  double operator()(const work::TensorList& list) const {
    const bool copies = kernel.op == &kSplitWithSizesCopy || kernel.op == &kChunkCat;
    if (copies && kernel.kind == KernelKind::kMultiTensor) return shard_copy_seconds(kernel, device);
    return is_list(kernel) ? list_seconds(kernel, list, device, rates) : by_memory();
  }
  double operator()(const work::Rows& of) const {
    if (kernel.op == &aten::kTopk) return topk_seconds(kernel, of, device, rates);
    if (kernel.op == &aten::kSort) return sorted_rows_seconds(of, device);
    if (kernel.op == &aten::kCumsum) return std::max(by_memory(), summed_rows_seconds(kernel, of));
    if (is_of_regions(kernel)) return std::max(by_memory(), regions_seconds(kernel, of));
    if (of.softmax) return softmax_seconds(kernel, of, device, rates);
    return rates.blocks.source.empty() ? by_memory() : rows_seconds(kernel, of, device, rates);
  }
  template <typename Other>
  double operator()(const Other& /*other*/) const {
    return by_memory();
  }
  [[nodiscard]] double chain_of_sort() const {
    // Launches: a copy, arange, the sort; of cub's a histogram, a scan and the passes.
    constexpr std::int32_t kWithOneBlock = 3, kBesidePasses = 4;
    if (kernel.launches <= kWithOneBlock) return kSmallSortUs * kMicrosecond;
    return (kernel.launches - kBesidePasses) *
           (kPassUs * kMicrosecond + kernel.elements * kPassElementNs * kNanosecond);
  }
  [[nodiscard]] double by_memory() const {
    if (is_interpolation(kernel)) return interpolation_seconds(kernel, device, rates);
    if (kernel.kind == KernelKind::kRowSum && kernel.node == &aten::kConvolution.node) {
      return channel_sum_seconds(kernel, device, rates);
    }
    if (kernel.kind == KernelKind::kImage && is_of_windows(kernel) && !rates.blocks.source.empty()) {
      return pooling_seconds(kernel, device, rates);
    }
    if (is_fused(kernel)) return fused_seconds(kernel, device, rates.vectorized);
    if (const double published = published_share_seconds(kernel, device, rates); published > 0) return published;
    const bool of_optimizer = kernel.operator_class == OperatorClass::kOptimizer;
    if (of_optimizer && kernel.kind == KernelKind::kRowSum) return looped_sum_seconds(kernel, device);
    if (kernel.kind == KernelKind::kRowSum) return row_sum_seconds(kernel, device, rates);
    const bool sums = kernel.op == &aten::kSum || (of_optimizer && kernel.kind == KernelKind::kColumnSum);
    if (sums && is_column_sum(kernel, device)) {
      return column_sum_seconds(kernel, device, rates.column_sum);
    }
    const bool indexes = kernel.kind == KernelKind::kStrided || kernel.kind == KernelKind::kTurned;
    double memory = indexes ? strided_seconds(kernel, device, rates.strided)
                    : kernel.kind == KernelKind::kConverting
                        ? converting_seconds(kernel, device, rates.converting)
                        : memory_seconds(kernel, device, memory_rates(kernel, rates));
    // CatArrayBatchedCopy_vectorized: caches of 30 MB and more at 2.8 TB/s on an H100 and 3.8 on an H200, where other
    // kernels reach 3.0 and 4.3 (inference_parts_h100.jsonl, decode_kernels_h200.jsonl.gz).
    constexpr double kJoinedVectorShare = 0.9;
    if (kernel.op == &aten::kCat && !indexes) memory /= kJoinedVectorShare;
    if (const double computed = computed_per_second(kernel); computed > 0) {
      memory = std::max(memory, kernel.elements * kMeasuredMultiprocessors / (computed * device.multiprocessors));
    }
    if (kernel.op == &aten::kSort) return memory + chain_of_sort();
    // native/cuda/TensorTransformations.cu, roll_cuda_kernel
    return kernel.op == &aten::kRoll ? std::max(memory, kernel.elements / kRolledPerSecond) : memory;
  }
};

}  // namespace

double kernel_seconds(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates) {
  switch (kernel.kind) {
    case KernelKind::kPartOfPrevious:
    case KernelKind::kSynchronize:
    case KernelKind::kCopyToDevice:
    case KernelKind::kCopyToHost: return 0;
    default: return std::visit(SecondsOf{kernel, device, rates}, kernel.work);
  }
}

}  // namespace memcalc
