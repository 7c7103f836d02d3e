// MIRRORS(torch, "cuda/Reduce.cuh", "2.11.0")
// Sums over the outer dimensions of a tensor, as gradients of biases are: blocks of columns go over all rows. Where
// that leaves too few blocks, rows are divided among more of them, and the last block of each column reads what all
// have summed, one after the other.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "memcalc/base/seconds.h"
#include "memcalc/cost/kernel_time.h"

namespace memcalc {

namespace {

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

std::int64_t last_power_of_two(std::int64_t value) {
  std::int64_t power = 1;
  while (2 * power <= value) power *= 2;
  return power;
}

/// How setReduceConfig divides the rows.
struct Division {
  std::int64_t values;          // that a thread sums
  std::int64_t blocks = 1;      // of a column
  std::int64_t block_rows = 1;  // of threads
};

Division division_of(std::int64_t rows, std::int64_t columns, std::int64_t multiprocessors) {
  constexpr std::int64_t kWarp = 32, kMostThreads = 512, kThreadsAtOnce = 2048, kLeastValues = 16, kMostValues = 256;
  const std::int64_t vector = columns % 4 == 0 ? 4 : columns % 2 == 0 ? 2 : 1;
  const std::int64_t threads = kMostThreads / vector;
  const std::int64_t widest = std::min(last_power_of_two(std::max<std::int64_t>(columns / vector, 1)), threads);
  const std::int64_t height = std::min(std::min(last_power_of_two(rows), threads), threads / std::min(widest, kWarp));
  const std::int64_t width = std::min(widest, threads / height);
  const bool splits = rows >= std::min(height * 16, kMostValues);
  Division division{.values = splits ? ceil_of(rows, height) : rows, .block_rows = splits ? height : 1};
  const std::int64_t across = width * vector * (splits ? 1 : height);
  const std::int64_t grid = ceil_of(columns, across);
  const std::int64_t wanted = multiprocessors * (kThreadsAtOnce / (width * height));
  if (!splits || division.values < kMostValues || grid > wanted) return division;
  division.blocks = std::max(std::min(ceil_of(wanted, grid), ceil_of(division.values, kLeastValues)),
                             ceil_of(division.values, kMostValues));
  return division;
}

}  // namespace

bool is_column_sum(const Kernel& kernel, const DeviceSpec& device) {
  const std::int64_t columns = column_sums(kernel);
  if (columns == 0 || (kernel.kind != KernelKind::kColumnSum && kernel.kind != KernelKind::kTurned)) return false;
  if (kernel.kind == KernelKind::kColumnSum) return true;
  // Over a dimension among others: a column sum where each thread has much to sum (channels last); else threads side by
  // side read far apart.
  const auto rows = static_cast<std::int64_t>(kernel.elements) / columns;
  return division_of(rows, columns, device.multiprocessors).blocks > 1;
}

std::int64_t column_sums(const Kernel& kernel) {
  const double results = kernel.bytes / static_cast<double>(size_of(kernel.dtype)) - kernel.elements;
  return results >= 1 && results < kernel.elements ? std::llround(results) : 0;
}

// Of 117 shapes of an H200 and 75 of an H100 whose rows are divided among blocks (profiled steps,
// tests/measured/step_operators_h200.jsonl.gz, network_operators_h100.jsonl.gz and the others of H100s): least squares
// give 6.7 and 6.9 us, 3.55 and 2.76 TB/s, and 0.26 and 0.27 us for each that a thread reads again; half are within 6
// and 10 %, nine in ten within 19 and 22 %. Of bytes alone 256 columns of 150,528 rows were a third of what they take.
double column_sum_seconds(const Kernel& kernel, const DeviceSpec& device, const MemoryRates& rates) {
  // Where threads share the rows of their block alone memory decides: 4.5 TB/s of an H200, 3.0 of an H100 (mamba2, 0.8
  // to 3.2 G elements; step_operators_h200.jsonl.gz, network_profiles_h100.jsonl.gz).
  constexpr double kSharedRows = 0.92;
  constexpr double kReadAgainUs = 0.265, kValueUs = 0.047, kWithoutBlocksUs = -2.2;
  const std::int64_t columns = column_sums(kernel);
  const auto rows = static_cast<std::int64_t>(kernel.elements) / columns;
  const Division division = division_of(rows, columns, device.multiprocessors);
  const double moved = kernel.bytes / (rates.bandwidth * device.memory_bandwidth_bytes_per_second);
  if (division.blocks > 1) {
    const double again = static_cast<double>(division.blocks) / static_cast<double>(division.block_rows);
    return (rates.launch_us + again * kReadAgainUs) * kMicrosecond + moved;
  }
  const double chain = static_cast<double>(division.values) * kValueUs * kMicrosecond;
  const double shared = kernel.bytes / (kSharedRows * device.memory_bandwidth_bytes_per_second);
  return std::max(rates.launch_us + kWithoutBlocksUs, 0.0) * kMicrosecond +
         std::max(division.block_rows > 1 ? shared : moved, chain);
}

}  // namespace memcalc
