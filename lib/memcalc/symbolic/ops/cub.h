// Temporary storage of CUB's device-wide algorithms on sm_90, as PyTorch's kernels request it (cccl:
// dispatch_radix_sort.cuh, dispatch_scan.cuh, dispatch_unique_by_key.cuh): arrays rounded up to 256 bytes, and 255
// bytes to align the first. Checked against 1,268 measured calls.
// MIRRORS(torch, "dispatch_radix_sort.cuh", "2.11.0")
// MIRRORS(torch, "dispatch_scan.cuh", "2.11.0")
// MIRRORS(torch, "dispatch_unique_by_key.cuh", "2.11.0")
#pragma once

#include "memcalc/base/bytes.h"

namespace memcalc {

inline constexpr Bytes kCubAlignment = 256;
inline constexpr std::int64_t kSmallSortTile = 2304;  // SingleTilePolicy: 256 threads, 9 pairs of int64 each
inline constexpr std::int64_t kSortTile = 4608;       // OnesweepPolicy: 384 threads, 12 pairs each
inline constexpr std::int64_t kUniqueTile = 4480;     // keys from which one thread block takes the distinct ones
inline constexpr std::int64_t kSelectTile = 4224;     // flags from which one thread block takes those that are set
inline constexpr std::int64_t kScanTile = 896;        // int64 that one thread block scans

/// Radix sort of n pairs (int64, int64) by the lowest `bits` of their keys. What fits into one block of its kernel for
/// small inputs needs nothing (1 byte is asked for). Beyond that, onesweep: every pass over 8 bits has 256 bins and
/// counters, every tile its look-back; several passes need second buffers for keys and values.
[[nodiscard]] inline Bytes radix_sort_bytes(std::int64_t n, int bits = 64) {
  if (n <= kSmallSortTile) return 1;
  const std::int64_t passes = ceil_div(bits, 8);
  const Bytes second_buffers = passes > 1 ? 2 * round_up(8 * n, kCubAlignment) : 0;
  return second_buffers + passes * 256 * 8 + 1024 * ceil_div(n, kSortTile) + round_up(4 * passes, kCubAlignment) +
         kCubAlignment - 1;
}

/// Kernels that it launches: beyond one block the digits' histogram, a scan of it, and the passes.
[[nodiscard]] inline std::int32_t radix_sort_launches(std::int64_t n, int bits = 64) {
  return n <= kSmallSortTile ? 1 : static_cast<std::int32_t>(2 + ceil_div(bits, 8));
}

/// Decoupled look-back: 16 bytes a tile, 8 where the values have 4; 32 tiles of padding.
[[nodiscard]] inline Bytes look_back_bytes(std::int64_t n, std::int64_t tile, std::int64_t value_size = 8) {
  return round_up(2 * value_size * (32 + ceil_div(n, tile)), kCubAlignment) + 2 * kCubAlignment - 1;
}

/// Prefix sum of n int64, or of a few int32.
[[nodiscard]] inline Bytes scan_bytes(std::int64_t n, std::int64_t value_size = 8) {
  return look_back_bytes(n, kScanTile, value_size);
}

/// Sum of n int32 flags by cub::DeviceReduce: a partial sum of each of 5 rounds of 8 thread blocks a multiprocessor.
[[nodiscard]] inline Bytes sum_bytes(std::int64_t n, std::int64_t multiprocessors) {
  constexpr std::int64_t kTile = 256 * 16;
  return n <= kTile ? 1 : round_up(multiprocessors * 8 * 5 * 4, kCubAlignment) + kCubAlignment - 1;
}

/// The places of n flags that are set (cub::DeviceSelect::Flagged).
[[nodiscard]] inline Bytes select_bytes(std::int64_t n) { return look_back_bytes(n, kSelectTile, 4); }

/// Unique-by-key of n pairs of int64.
[[nodiscard]] inline Bytes unique_bytes(std::int64_t n) { return look_back_bytes(n, kUniqueTile); }

}  // namespace memcalc
