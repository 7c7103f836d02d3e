// Temporary storage of CUB's device-wide algorithms on sm_90, as PyTorch's kernels request it (cccl:
// dispatch_radix_sort.cuh, dispatch_scan.cuh, dispatch_unique_by_key.cuh): arrays rounded up to 256 bytes, and 255
// bytes to align the first. Checked against 1,268 measured calls.
#pragma once

#include "memcalc/base/bytes.h"

namespace memcalc {

inline constexpr Bytes kCubAlignment = 256;
inline constexpr std::int64_t kSortTile = 4608;    // pairs of int64 that one thread block sorts
inline constexpr std::int64_t kUniqueTile = 4480;  // keys from which one thread block takes the distinct ones
inline constexpr std::int64_t kScanTile = 896;     // int64 that one thread block scans

/// Onesweep radix sort of n pairs (int64, int64): second buffers for keys and values, eight digit passes' bins, the
/// look-back of every tile and its counters.
[[nodiscard]] inline Bytes radix_sort_bytes(std::int64_t n) {
  return 2 * round_up(8 * n, kCubAlignment) + 8 * 256 * 8 + 1024 * ceil_div(n, kSortTile) + 2 * kCubAlignment - 1;
}

/// Decoupled look-back: 16 bytes a tile, 32 tiles of padding.
[[nodiscard]] inline Bytes look_back_bytes(std::int64_t n, std::int64_t tile) {
  return round_up(16 * (32 + ceil_div(n, tile)), kCubAlignment) + 2 * kCubAlignment - 1;
}

/// Prefix sum of n int64.
[[nodiscard]] inline Bytes scan_bytes(std::int64_t n) { return look_back_bytes(n, kScanTile); }

/// Unique-by-key of n pairs of int64.
[[nodiscard]] inline Bytes unique_bytes(std::int64_t n) { return look_back_bytes(n, kUniqueTile); }

}  // namespace memcalc
