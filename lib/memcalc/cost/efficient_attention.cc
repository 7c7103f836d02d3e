// MIRRORS(torch, "transformers/cuda/mem_eff_attention/kernel_forward.h", "2.11.0")
// MIRRORS(torch, "transformers/cuda/mem_eff_attention/kernel_backward.h", "2.11.0")
// Memory-efficient attention as CUTLASS computes it: a block takes some queries and walks over tiles of keys; in
// backward some keys (attention_backward.cu splits them as far as it can), over tiles of queries. What a tile takes is
// computed whole: 200 keys as 256, heads of 72 as 128 where they are columns of the result and as 96 where they are
// summed over.
//
// Of 390 timings of an H100 and an H200 (tests/measured/kernel_sweep_h200.jsonl.gz, op_times_h100.jsonl,
// op_times_h200.jsonl, attention_bias_times_h100.jsonl, step_operators_h200.jsonl.gz, network_profiles_h100.jsonl.gz;
// least squares, 2026-11-29) half are within 3 % and nine in ten within 11; by FLOPs and a ramp of the heads' width
// half were within 10 %, nine in ten within 60. With a bias, of 250 more of an H200 (kernel_sweep_later_h200.jsonl.gz,
// 2026-11-30) half are within 4 %.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "memcalc/base/bytes.h"
#include "memcalc/base/seconds.h"
#include "memcalc/cost/kernel_time.h"

namespace memcalc {

namespace {

/// A kernel of dispatch_cutlassF and dispatch_cutlassB (kernels/cutlassF.h, cutlassB.h) for cards from 8.0 on.
struct Tiles {
  std::int64_t queries, keys;  // of a tile
  std::int64_t at_once;        // blocks of a multiprocessor: kMinBlocksPerSm
  double rate;                 // of its products over that of the kernel for heads of 64
  double alone;                // a block that has the multiprocessor for itself takes so many times its share
  double tail;                 // under a causal mask the longest blocks end later than the others, by so many of them
};

Tiles tiles_of(std::int64_t width, bool half, bool backward) {
  constexpr std::int64_t kNarrow = 64, kWide = 128;
  constexpr double kAlone = 1.7, kWholeAlone = 3, kTail = 1.2, kSingleTail = 0.55;
  if (!backward) {
    if (width <= kNarrow) {
      return {.queries = 64, .keys = 64, .at_once = half ? 4 : 3, .rate = 1, .alone = kAlone, .tail = kTail};
    }
    if (width <= kWide) {
      return {.queries = 64, .keys = 128, .at_once = half ? 2 : 1, .rate = 1.35, .alone = 1.2, .tail = kSingleTail};
    }
    return {.queries = 32,
            .keys = 128,
            .at_once = half ? 4 : 3,
            .rate = half ? 1.12 : 1.22,
            .alone = 1.2,
            .tail = kSingleTail};
  }
  if (width <= kNarrow) {
    return {.queries = 64,
            .keys = 64,
            .at_once = half ? 3 : 2,
            .rate = 1,
            .alone = half ? kWholeAlone : kAlone,
            .tail = kTail};
  }
  if (width <= kWide) {
    return {.queries = 128,
            .keys = half ? 128 : 64,
            .at_once = 1,
            .rate = half ? 1.23 : 1.04,
            .alone = 1,
            .tail = kSingleTail};
  }
  // In 16 bits its sums go through memory: 22 TFLOP/s.
  return {.queries = 128, .keys = 64, .at_once = 1, .rate = half ? 0.19 : 1.02, .alone = 1, .tail = kSingleTail};
}

/// How many tiles all blocks of a head walk over, and the longest.
struct Walk {
  std::int64_t blocks, tiles, longest;
};

Walk walk_of(const work::Attention& attention, const Tiles& of) {
  const std::int64_t of_queries = ceil_div(attention.queries, of.queries), of_keys = ceil_div(attention.keys, of.keys);
  Walk walk{.blocks = attention.backward ? of_keys : of_queries,
            .tiles = of_queries * of_keys,
            .longest = attention.backward ? of_queries : of_keys};
  if (!attention.causal) return walk;
  walk.tiles = 0;
  for (std::int64_t i = 0; i < of_queries; ++i) {
    walk.tiles += ceil_div(std::min(attention.keys, (i + 1) * of.queries), of.keys);
  }
  return walk;
}

}  // namespace

double efficient_attention_seconds(const Kernel& kernel, const work::Attention& attention, const DeviceSpec& device,
                                   const AttentionRates& rates) {
  constexpr double kAroundTiles = 0.3;  // of a tile: what a block does before and after
  constexpr double kDropoutBackward = 1.12;
  constexpr std::int64_t kSummed = 32;  // elements of a head that are multiplied at once (GemmType::ThreadK)
  constexpr std::int64_t kNarrowHead = 64, kAlignedRow = 16;
  constexpr double kWrittenShare = 0.6;  // of the memory's rate: 2.9 TB/s on an H200
  const bool half = is_half(kernel.dtype), backward = attention.backward;
  const Tiles of = tiles_of(attention.width, half, backward);
  const Walk walk = walk_of(attention, of);
  const auto multiprocessors = static_cast<double>(device.multiprocessors);
  const auto heads = static_cast<double>(attention.heads);
  const double blocks = heads * static_cast<double>(walk.blocks);
  const double longest = static_cast<double>(walk.longest) + kAroundTiles;
  double tiles = 0;  // one after the other, on the multiprocessor that has most
  if (attention.causal) {
    const double shared = (heads * static_cast<double>(walk.tiles) + kAroundTiles * blocks) / multiprocessors;
    tiles = std::max(shared + of.tail * longest, of.alone * longest);
  } else {
    const auto most = static_cast<std::int64_t>(std::ceil(blocks / multiprocessors));
    const std::int64_t rest = most % of.at_once;
    const double last = rest == 0 ? 0 : std::max(of.alone, static_cast<double>(rest));
    tiles = (static_cast<double>(most - rest) + last) * longest;
  }
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  // Columns of the result: of values in forward; in backward of the three gradients, by the tile's keys.
  const auto products_of = [&](std::int64_t width) {
    const std::int64_t columns = round_up(width, of.keys), summed = round_up(width, kSummed);
    return backward ? 2 * real(summed) + 3 * real(columns) : real(summed) + real(columns);
  };
  const double peak = sustained_flops(kernel, device) * of.rate * (backward ? rates.backward : rates.forward);
  const double product_seconds = tiles * 2 * real(of.queries * of.keys) * multiprocessors / peak;  // of a column
  double seconds = product_seconds * products_of(attention.width);
  if (attention.dropout) seconds *= backward ? kDropoutBackward : rates.dropout;
  // What is added to a score takes as long however narrow the heads are.
  const double added = backward ? rates.bias_backward : rates.bias;
  if (attention.bias) seconds += (added - 1) * product_seconds * products_of(std::max(attention.width, kNarrowHead));
  if (attention.learns_bias) {  // kernel_backward.h, grad_bias_ptr: rows at multiples of 16 elements
    const double scores = heads * real(attention.queries) * real(round_up(attention.keys, kAlignedRow));
    seconds += scores * real(size_of(kernel.dtype)) / (kWrittenShare * device.memory_bandwidth_bytes_per_second);
  }
  if (!backward) return rates.launch_us * kMicrosecond + seconds;
  const double gradient_bytes = 4 * heads * real(attention.queries) * real(attention.width);
  return 2 * rates.launch_us * kMicrosecond + seconds +
         rates.passes * gradient_bytes / device.memory_bandwidth_bytes_per_second;
}

}  // namespace memcalc
