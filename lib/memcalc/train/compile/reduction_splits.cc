#include "memcalc/train/compile/reduction_splits.h"

#include <algorithm>

#include "memcalc/base/bytes.h"

namespace memcalc::compile {

namespace {

constexpr std::int64_t kWarp = 32, kThreadsPerMultiprocessor = 2048, kThreadsOfBlock = 256;
constexpr std::int64_t kMostPerThread = 512;

/// The divisor of `value` nearest to `wanted`, of two the smaller; `wanted` where none is nearer than `within`.
std::int64_t near_divisor(std::int64_t value, std::int64_t wanted, std::int64_t within) {
  for (std::int64_t distance = 0; distance < within; ++distance) {
    for (const std::int64_t candidate : {wanted - distance, wanted + distance}) {
      if (candidate > 0 && value % candidate == 0) return candidate;
    }
  }
  return wanted;
}

/// choices.py, reduction_split_factor, of elements that lie side by side.
std::int64_t parts_within_rows(std::int64_t reduced, std::int64_t results, std::int64_t multiprocessors) {
  constexpr std::int64_t kShort = 8192;
  if (results >= 2 * multiprocessors || reduced <= kShort) return 1;
  const std::int64_t threads = multiprocessors * kThreadsPerMultiprocessor;
  std::int64_t size = kWarp;
  if (reduced * results > kWarp * threads) {
    const std::int64_t blocks = ceil_div(threads / (2 * kThreadsOfBlock), results);
    const std::int64_t wanted = ceil_div(reduced, kThreadsOfBlock * blocks);
    size = reduced * results < kMostPerThread * threads ? std::max(near_divisor(reduced, wanted, 30), kWarp)
                                                        : near_divisor(reduced, kMostPerThread, 50);
  }
  return ceil_div(reduced, size * kThreadsOfBlock);
}

/// The same of elements that lie apart.
std::int64_t parts_across_rows(std::int64_t reduced, std::int64_t results, std::int64_t multiprocessors) {
  constexpr std::int64_t kValuesPerThread = 4, kResultsPerBlock = 128;
  const std::int64_t threads = multiprocessors * kThreadsPerMultiprocessor;
  std::int64_t size = kWarp;
  if (reduced * results >= kMostPerThread * threads) {
    size = near_divisor(reduced, kMostPerThread, 50);
  } else if (reduced * results >= kWarp * threads) {
    const std::int64_t blocks = ceil_div(threads / kThreadsOfBlock, ceil_div(results, kResultsPerBlock));
    const std::int64_t wanted = ceil_div(reduced, kValuesPerThread * blocks);
    const std::int64_t near = near_divisor(reduced, wanted, 20);
    size = reduced % near == 0 ? std::max(near, kWarp) : wanted;
  }
  return ceil_div(reduced, kValuesPerThread * size);
}

}  // namespace

// ir.py, Reduction.num_splits.
std::int64_t parts_of_reduction(std::int64_t reduced, std::int64_t results, bool across_rows,
                                std::int64_t multiprocessors) {
  constexpr std::int64_t kFewElements = 32, kResultsPerMultiprocessor = 64;
  if (results == 1) return parts_within_rows(reduced, results, multiprocessors);
  if (reduced <= kFewElements || results >= kResultsPerMultiprocessor * multiprocessors) return 1;
  return across_rows ? parts_across_rows(reduced, results, multiprocessors)
                     : parts_within_rows(reduced, results, multiprocessors);
}

// scheduler.py, MixOrderReduction.can_fuse.
bool takes_columns_along(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t kLeastElements = 5 * 1024 * 1024, kLeastRows = 4096, kMostColumns = 16384;
  return rows * columns >= kLeastElements && rows >= 2 * columns && rows >= kLeastRows && columns <= kMostColumns;
}

// codegen/simd.py, _codegen_mix_order_reduction.
std::int64_t workspace_rows(std::int64_t rows, std::int64_t multiprocessors) {
  constexpr std::int64_t kBlocksPerMultiprocessor = 8, kLeast = 16, kMost = 128;
  std::int64_t size = kLeast;
  while (size < kMost && 2 * size <= rows / (multiprocessors * kBlocksPerMultiprocessor)) size *= 2;
  return ceil_div(rows, size);
}

}  // namespace memcalc::compile
