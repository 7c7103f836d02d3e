// MIRRORS(torch, "cuda/SoftMax.cu", "2.11.0")
// Softmax over the last dimension, by how the kernel holds a row: PyTorch's PersistentSoftmax.cuh and SoftMax.cu.
#include <algorithm>
#include <cstdint>

#include "memcalc/base/seconds.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/measured_card.h"

namespace memcalc {

namespace {

/// A softmax whose rows are read once: a warp holds a short one (PersistentSoftmax.cuh, in forward up to 2,048
/// values), a block's registers or shared memory a longer one (SoftMax.cu: cunn_SoftMaxForwardReg,
/// cunn_SoftMaxBackwardSmem; rows that begin at no multiple of 16 bytes are read twice in backward).
struct HeldSoftmax {
  double launch_us;
  double share;              // of the rate of longer rows
  double values_per_second;  // that are computed where 132 multiprocessors are; 0: memory decides
};

HeldSoftmax held_softmax(const work::Rows& rows, bool half) {
  constexpr std::int64_t kByHalfWarp = 64, kByWarp = 1024, kByWarpForward = 2048, kAligned = 16;
  if (rows.width <= kByWarp || (rows.width <= kByWarpForward && !rows.backward)) {
    const bool narrow = rows.width <= kByWarp;
    if (rows.backward) return {.launch_us = 2.5, .share = 1.08, .values_per_second = half ? 0.55e12 : 0};
    // Half a warp's lanes hold two values each: 49 of a window as 64 (swin_b: 0.31 T values a second of 39 M).
    if (rows.width <= kByHalfWarp) {
      return {.launch_us = 2.5,
              .share = 0.96,
              .values_per_second = 0.43e12 * static_cast<double>(rows.width) / kByHalfWarp};
    }
    return {.launch_us = narrow ? 2.5 : 4.5,
            .share = 0.96,
            .values_per_second = !half    ? 0
                                 : narrow ? 0.48e12
                                          : 0.42e12};
  }
  if (!rows.backward) return {.launch_us = 4.5, .share = 1, .values_per_second = 0.3e12};
  const bool aligned = rows.width * (half ? 2 : 4) % kAligned == 0;
  if (aligned) return {.launch_us = 0.8, .share = 1.03, .values_per_second = 0};
  return {.launch_us = 0.8, .share = 0.7, .values_per_second = half ? 0.385e12 : 0};
}

/// A block of 1,024 threads goes over a long row, two on a multiprocessor. Forward reads it for a maximum, a sum and
/// the result, backward the gradient for a sum and the result; what fits into shared memory once. What forward reads
/// again the cache holds the less the more of it all rows at work take; in 16 bits a row takes 10 us, however short. Of
/// 146 in profiled steps of H200s and H100s (step_operators_h200.jsonl.gz and the others) and 40 alone
/// (op_times_h100.jsonl, op_times_h200.jsonl, 2026-11-30).
double long_softmax_seconds(const Kernel& kernel, const work::Rows& rows, const DeviceSpec& device,
                            const DeviceRates& rates) {
  constexpr double kLaunchUs = 3, kSharedBytes = 48 * 1024, kBlocks = 2;
  constexpr double kForwardShare = 1.06, kBackwardShare = 0.98, kHalfBackwardShare = 1.04;  // of the rate
  constexpr double kKept = 0.2, kLost = 0.86;  // of the cache: held whole, not at all
  constexpr double kRowUs = 10.5, kValueNs = 0.154, kSharedPerSecond = 0.65e12;
  const auto count = static_cast<double>(rows.count), width = static_cast<double>(rows.width);
  const double row = width * static_cast<double>(size_of(kernel.dtype));
  const bool shared = row <= kSharedBytes;
  double passes = rows.backward ? 3 : 2;
  if (!shared && rows.backward) passes += 1;
  if (!shared && !rows.backward) {
    const double held = kBlocks * device.multiprocessors * row / std::max(rates.cache.bytes, 1.0);
    passes += 2 * std::clamp((held - kKept) / (kLost - kKept), rates.cache.read_share, 1.0);
  }
  const double share = !rows.backward ? kForwardShare : is_half(kernel.dtype) ? kHalfBackwardShare : kBackwardShare;
  const double bytes_per_second = share * rates.softmax.bandwidth * device.memory_bandwidth_bytes_per_second;
  double computed = 0;
  if (!rows.backward && is_half(kernel.dtype)) {
    computed =
        shared ? count * width * kMeasuredMultiprocessors / (kSharedPerSecond * device.multiprocessors)
               : count / (kBlocks * device.multiprocessors) * (kRowUs * kMicrosecond + width * kValueNs * kNanosecond);
  }
  return kLaunchUs * kMicrosecond + std::max(passes * count * row / bytes_per_second, computed);
}

}  // namespace

// cuda/SoftMax.cu. Of 72 softmaxes of up to 8,192 values alone on an H200
// (tests/measured/kernel_sweep_h200.jsonl.gz, 2026-11-29) half are within 8 %, of 38 in profiled steps
// (step_operators_h200.jsonl.gz) within 10; as rows of any length they were 41 and 13 % off.
double softmax_seconds(const Kernel& kernel, const work::Rows& rows, const DeviceSpec& device,
                       const DeviceRates& rates) {
  constexpr std::int64_t kHeld = 8192;
  if (rows.width > kHeld) return long_softmax_seconds(kernel, rows, device, rates);
  const HeldSoftmax held = held_softmax(rows, is_half(kernel.dtype));
  const double bytes_per_second = held.share * rates.softmax.bandwidth * device.memory_bandwidth_bytes_per_second;
  const double values = static_cast<double>(rows.count) * static_cast<double>(rows.width);
  // From float16 to float32 a row that neither a warp holds nor, beginning at no multiple of 16 bytes, shared memory is
  // read three times by a block of 1,024 threads, two on a multiprocessor: 162,000 and 38,880 rows of 1,500 take 13.04
  // and 13.11 ns each (Whisper's, step_operators_h200.jsonl.gz).
  constexpr std::int64_t kByWarp = 1024, kAligned = 16;
  constexpr double kRowUs = 3.44, kBlocks = 2;
  const std::int64_t value = size_of(kernel.dtype);
  const bool widens = !rows.backward && kernel.bytes > 2 * values * static_cast<double>(value);
  if (widens && rows.width > kByWarp && rows.width * value % kAligned != 0) {
    return held.launch_us * kMicrosecond +
           static_cast<double>(rows.count) / (kBlocks * device.multiprocessors) * kRowUs * kMicrosecond;
  }
  const double computed = held.values_per_second > 0
                              ? values * kMeasuredMultiprocessors / (held.values_per_second * device.multiprocessors)
                              : 0;
  return held.launch_us * kMicrosecond + std::max(kernel.bytes / bytes_per_second, computed);
}

}  // namespace memcalc
