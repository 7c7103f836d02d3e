// cuDNN's attention on Hopper (cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16 and _bprop_, 9.19): forward
// a block of 128 queries walks over tiles of 128 keys, backward a block of 128 keys over tiles of 64 queries, each tile
// computed whole. Backward runs small kernels beside: the sums of gradient times output (compute_dot_do_o), dQ from
// float32 (convert_dq_to_16bits), and where heads share keys dK and dV from those of each head (fmha_reduce_head).
//
// Least squares over half of 75 shapes drawn at random, alone on an H200 with operands that no cache holds
// (tests/measured/operator_draws_h200.jsonl.gz, 2026-11-30), and kernels of its profiled steps
// (step_operators_h200.jsonl.gz). What the other half is off by: docs/studies/time-kernels.md.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "memcalc/base/bytes.h"
#include "memcalc/base/seconds.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/measured_card.h"
#include "memcalc/spec/cuda_architecture.h"

namespace memcalc {

namespace {

constexpr double kSustained = 989.4e12;  // of the card that was measured

struct Tiles {
  std::int64_t queries, keys;
  double tile_us;       // of a multiprocessor's own
  double around_us;     // what a block does before and after its tiles
  double alone;         // a block that has the multiprocessor for itself takes so many times as long as its share
  double tail;          // of the longest block, for which the others wait; without a mask: of waves that overlap
  double bias, random;  // more of a tile: a bias is added, dropout's numbers are drawn
  double ragged;        // more of a tile: keys or queries fill no whole number of them, so that each is masked
  double share;         // of the memory's rate, where it decides
};

Tiles tiles_of(const work::Attention& attention) {
  constexpr std::int64_t kNarrow = 64, kMiddle = 128;
  if (!attention.backward) {
    if (attention.width <= kNarrow) return {128, 128, 1.191, 0.88, 0.73, 0.485, 1.04, 1.62, 0.155, 0.97};
    if (attention.width <= kMiddle) return {128, 128, 1.815, 1.04, 1, 0.456, 0.7, 1.135, 0.02, 1};
    return {128, 128, 3.687, 0.87, 1, 0.524, 2.26, 1.4, 0, 1};
  }
  if (attention.width <= kNarrow) return {64, 128, 1.571, 3.17, 0.87, 0.434, 0.72, 0.324, 0, 0.78};
  if (attention.width <= kMiddle) return {64, 128, 2.406, 3.64, 0.87, 0.465, 0.95, 0.38, 0, 0.86};
  return {64, 128, 6.79, 0.86, 0.6, 0.517, 1.27, 0.38, 0, 0.6};
}

/// Tiles of all blocks of a head, and of the longest.
struct Walk {
  std::int64_t blocks, tiles, longest;
};

Walk walk_of(const work::Attention& attention, const Tiles& of) {
  const std::int64_t of_queries = std::max<std::int64_t>(ceil_div(attention.queries, of.queries), 1);
  const std::int64_t of_keys = std::max<std::int64_t>(ceil_div(attention.keys, of.keys), 1);
  if (!attention.backward) {
    if (!attention.causal) return {of_queries, of_queries * of_keys, of_keys};
    const std::int64_t shorter = std::min(of_queries, of_keys);  // blocks that the diagonal ends
    return {of_queries, shorter * (shorter + 1) / 2 + (of_queries - shorter) * of_keys, shorter};
  }
  if (!attention.causal) return {of_keys, of_queries * of_keys, of_queries};
  const std::int64_t step = of.keys / of.queries;  // tiles of queries that each block of keys leaves out more
  const std::int64_t long_ones = std::min(of_keys, ceil_div(of_queries, step));
  const std::int64_t tiles =
      long_ones * of_queries - step * long_ones * (long_ones - 1) / 2 + (of_keys - long_ones);  // at least one each
  return {of_keys, tiles, of_queries};
}

double backward_beside_seconds(const Kernel& kernel, const work::Attention& attention, const DeviceSpec& device) {
  constexpr double kDotUs = 1.5, kConvertUs = 1.5, kReduceUs = 2;
  constexpr double kDotBytesPerSecond = 1.96e12, kConvertShare = 0.78, kReduceShare = 0.75;
  constexpr std::int64_t kConverted = 6;  // bytes: float32 to 16 bits
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double size = real(size_of(kernel.dtype)), memory = device.memory_bandwidth_bytes_per_second;
  const double of_queries = real(attention.heads) * real(attention.queries) * real(attention.width);
  const double dot = 2 * size * of_queries * kMeasuredMultiprocessors / (kDotBytesPerSecond * device.multiprocessors);
  double seconds = (kDotUs + kConvertUs) * kMicrosecond + dot + kConverted * of_queries / (kConvertShare * memory);
  const double of_heads = real(attention.heads) * real(attention.keys) * real(attention.width);
  if (kernel.elements < of_heads) {  // those of the keys
    const double of_keys = of_heads + kernel.elements;
    seconds += 2 * (kReduceUs * kMicrosecond + size * of_keys / (kReduceShare * memory));
  }
  return seconds;
}

/// Of a token that is generated (sdpa_sm80_flash_fprop_wmma_f16_knob_35_16x128): the query heads that share keys are
/// rows of one block, which walks over tiles of 128 keys, computed whole; the longest of a block alone, all of them and
/// the bytes hide each other. Where half of the multiprocessors would have no block, several share a long walk, and a
/// kernel joins their parts (lean_reduction_kernel). A bias is read by each block before its walk.
///
/// Least squares over half of 130 shapes of an H200 and an H100 (tests/measured/decode_kernels_h200.jsonl.gz,
/// 2026-11-30; inference_parts_h100.jsonl): half of the others are within 4.1 %, nine in ten within 17.
double one_query_seconds(const Kernel& kernel, const work::Attention& attention, const DeviceSpec& device,
                         double slower) {
  struct Walk {
    double alone_us, tile_us;  // a tile of a block alone, and of a multiprocessor's own
  };
  constexpr Walk kNarrow = {0.475, 0.76}, kMiddle = {0.885, 1.325}, kWide = {3.98, 5.7};
  constexpr double kLaunchUs = 3.9, kJoinUs = 2.9, kBiasUs = 0.8, kShare = 0.915;
  constexpr std::int64_t kTile = 128, kShortWalk = 4;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const Walk of = attention.width <= 64 ? kNarrow : attention.width <= 128 ? kMiddle : kWide;
  const std::int64_t tiles = ceil_div(attention.keys, kTile);
  const double blocks = kernel.elements / std::max(real(attention.keys) * real(attention.width), 1.0);
  const double multiprocessors = device.multiprocessors;
  const bool shares = 2 * blocks <= multiprocessors && tiles > kShortWalk;
  const double parts = shares ? std::min(real(tiles), std::floor(multiprocessors / blocks)) : 1;
  const double alone = of.alone_us * kMicrosecond * slower * std::ceil(real(tiles) / parts);
  const double all = of.tile_us * kMicrosecond * slower * blocks * real(tiles) / multiprocessors;
  const double bytes = 2 * kernel.elements * real(size_of(kernel.dtype));
  const double read = bytes / (kShare * device.memory_bandwidth_bytes_per_second);
  const auto cube = [](double x) { return x * x * x; };
  const double walked = std::cbrt(std::hypot(cube(alone), cube(all), cube(read)));
  const double bias = attention.bias ? kBiasUs * std::max(1.0, blocks / multiprocessors) : 0;
  return (kLaunchUs + bias + (shares ? kJoinUs : 0)) * kMicrosecond + walked;
}

}  // namespace

bool has_hopper_attention(const Kernel& kernel, const DeviceSpec& device) {
  return kernel.kind == KernelKind::kCudnnAttention && is_of(device, CudaArchitecture::kHopper);
}

double hopper_attention_seconds(const Kernel& kernel, const work::Attention& attention, const DeviceSpec& device) {
  constexpr double kForwardUs = 3.1, kBackwardUs = 4;
  const Tiles of = tiles_of(attention);
  const Walk walk = walk_of(attention, of);
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double slower =
      kSustained / sustained_flops(kernel, device) * device.multiprocessors / kMeasuredMultiprocessors;
  if (attention.queries == 1 && !attention.backward) return one_query_seconds(kernel, attention, device, slower);
  const bool ragged = attention.queries % of.queries != 0 || attention.keys % of.keys != 0;
  const double more = (attention.bias ? of.bias : 0) + (attention.dropout ? of.random : 0) + (ragged ? of.ragged : 0);
  const double tile = of.tile_us * kMicrosecond * slower * (1 + more);
  const double around = of.around_us * kMicrosecond;
  const double blocks = real(attention.heads) * real(walk.blocks), multiprocessors = device.multiprocessors;
  const double longest = real(walk.longest) * tile + around;
  double computed = 0;
  if (attention.causal) {
    computed =
        (real(attention.heads) * real(walk.tiles) * tile + blocks * around) / multiprocessors + of.tail * longest;
  } else {
    const double waves = blocks / multiprocessors;
    computed = ((1 - of.tail) * std::ceil(waves) + of.tail * waves) * longest;
  }
  computed = std::max(computed, of.alone * longest);
  // Queries, keys, values and the result; backward its gradient, and dQ in float32, which blocks add to.
  const double rows = real(attention.heads) * real(attention.width) * real(size_of(kernel.dtype)) / 2;
  const double bytes = rows * (attention.backward ? 12 * real(attention.queries) + 8 * real(attention.keys)
                                                  : 4 * real(attention.queries) + 4 * real(attention.keys));
  const double moved = bytes / (of.share * device.memory_bandwidth_bytes_per_second);
  const double launch = (attention.backward ? kBackwardUs : kForwardUs) * kMicrosecond;
  const double seconds = launch + std::cbrt(computed * computed * computed + moved * moved * moved);
  return attention.backward ? seconds + backward_beside_seconds(kernel, attention, device) : seconds;
}

}  // namespace memcalc
