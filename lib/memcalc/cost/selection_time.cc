// MIRRORS(torch, "cuda/TensorTopK.cu", "2.11.0")
// MIRRORS(torch, "cuda/ScanUtils.cuh", "2.11.0")
// MIRRORS(torch, "cuda/SortStable.cu", "2.11.0")
#include "memcalc/cost/selection_time.h"

#include <cmath>
#include <cstdint>

#include "memcalc/base/seconds.h"
#include "memcalc/cost/measured_card.h"
#include "memcalc/symbolic/topk_blocks.h"

namespace memcalc {

namespace {

// Rows of 32,000 to 256,000 float32, 1 to 128 of them, were timed on an H200 on 2026-11-30
// (tests/measured/sampling_times_h200.jsonl). The constants below are of the vocabularies of 32,000 and 256,000; of the
// other three half are within 4.3 % (topk; 128 rows of 151,936 are told 29 % too short), 0.4 % (running sums) and 2 %
// (sorts).

double of_multiprocessors(const DeviceSpec& device) {
  return kMeasuredMultiprocessors / static_cast<double>(device.multiprocessors);
}

}  // namespace

/// sbtopk: a block looks through each slice, and a warp sorts what it took. Of 288 to 98,304 slices of an H200
/// (tests/measured/step_operators_h200.jsonl.gz), half within 6 %; an H100's 576 to 4,096 alike. mbtopk, of few long
/// slices: a radix select in four passes of several blocks each. Slices of 32,000 and more were timed; shorter ones
/// that torch gives to it, too, are told as sbtopk's.
double topk_seconds(const Kernel& kernel, const work::Rows& slices, const DeviceSpec& device,
                    const DeviceRates& rates) {
  constexpr double kLaunchUs = 6.5, kSliceNs = 1.5, kSortUs = 5, kSortedSliceNs = 0.6;
  constexpr std::int64_t kTimed = 20000;
  constexpr double kPassesUs = 58, kWidthNs = 0.095, kElementNs = 0.0112;
  const auto count = static_cast<double>(slices.count), width = static_cast<double>(slices.width);
  if (slices.width >= kTimed && topk_shares_slices(slices.count, slices.width)) {
    return kPassesUs * kMicrosecond +
           (width * kWidthNs + count * width * kElementNs * of_multiprocessors(device)) * kNanosecond;
  }
  const double sort = kernel.launches > 1 ? kSortUs * kMicrosecond + count * kSortedSliceNs * kNanosecond : 0;
  return kLaunchUs * kMicrosecond + count * kSliceNs * kNanosecond + sort +
         kernel.bytes / (rates.vectorized.bandwidth * device.memory_bandwidth_bytes_per_second);
}

/// Fewer than 128 rows are sorted as one and then by rows, more by cub's segmented sort.
double sorted_rows_seconds(const work::Rows& rows, const DeviceSpec& device) {
  constexpr std::int64_t kManyRows = 128;
  constexpr double kFewUs = 78, kFewNs = 0.065, kManyUs = 30, kManyNs = 0.103;
  const double elements = static_cast<double>(rows.count) * static_cast<double>(rows.width);
  const bool few = rows.count < kManyRows;
  return (few ? kFewUs : kManyUs) * kMicrosecond +
         elements * (few ? kFewNs : kManyNs) * of_multiprocessors(device) * kNanosecond;
}

/// A block goes along each row, 1,024 elements at a time, whatever memory could do; longer where the second-level
/// cache does not hold what it reads and writes.
double summed_rows_seconds(const Kernel& kernel, const work::Rows& rows) {
  constexpr double kLaunchUs = 5.9, kRoundUs = 1.27, kFarRoundUs = 1.67, kCacheBytes = 50e6, kAtOnce = 1024;
  const double rounds = std::ceil(static_cast<double>(rows.width) / kAtOnce);
  return (kLaunchUs + rounds * (kernel.bytes > kCacheBytes ? kFarRoundUs : kRoundUs)) * kMicrosecond;
}

}  // namespace memcalc
