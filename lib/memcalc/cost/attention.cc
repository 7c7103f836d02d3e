// Fused attention: a block of 128 queries walks over blocks of 64 keys. The rate grows with the width of the heads and
// the number of keys; causal masks leave out the blocks above the diagonal. With a bias each score is read, converted
// and added to: on an H100 cuDNN's kernels take 1.5 to 2 times as long, whatever the width of the heads.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "memcalc/base/seconds.h"
#include "memcalc/cost/kernel_time.h"

namespace memcalc {

namespace {

/// Of a token that is generated, flash_fwd_splitkv: each key and value is read once by some blocks, and a kernel joins
/// their parts. Of an H100, 2026-11-27: tests/measured/inference_parts_h100.jsonl
double one_query_seconds(const Kernel& kernel, const work::Attention& attention, const DeviceSpec& device) {
  constexpr double kLaunchUs = 3.5, kJoinUs = 2.3, kBandwidth = 0.93;
  constexpr std::int64_t kUnsplitKeys = 256;
  const double bytes = 2 * kernel.elements * static_cast<double>(size_of(kernel.dtype));
  return (kLaunchUs + (attention.keys > kUnsplitKeys ? kJoinUs : 0)) * kMicrosecond +
         bytes / (kBandwidth * device.memory_bandwidth_bytes_per_second);
}

/// Times as long as multiprocessors that are all busy to the end would take. The last wave of blocks is not full; under
/// a causal mask blocks differ, and the longest, of twice the mean, end last.
double imbalance(double blocks, bool causal, const DeviceSpec& device) {
  constexpr double kCausalTail = 1, kRagged = 0.9;
  const double waves = std::max(blocks, 1.0) / device.multiprocessors;
  if (causal) return 1 + kCausalTail / waves;
  return std::max(1 / waves, 1 + kRagged * (std::ceil(waves) - waves) / waves);
}

double multiple(double count, double of) { return std::ceil(count / of) * of; }

}  // namespace

double attention_seconds(const Kernel& kernel, const work::Attention& attention, const DeviceSpec& device,
                         const AttentionRates& rates) {
  if (kernel.kind == KernelKind::kEfficientAttention) {
    return efficient_attention_seconds(kernel, attention, device, rates);
  }
  if (has_hopper_attention(kernel, device)) return hopper_attention_seconds(kernel, attention, device);
  if (attention.queries == 1 && !attention.backward) return one_query_seconds(kernel, attention, device);
  constexpr double kBlock = 128, kKeyBlock = 64;
  // cuDNN's, of an H100 and an H200 (2026-11-29, op_times_h200.jsonl, profile_times_h100.jsonl,
  // profile_times_h200.jsonl): heads of 256 take tiles half as large; backward draws the random numbers again, 0.62
  // instead of 0.53 ms.
  constexpr double kWide = 128, kWideForward = 1.22, kWideBackward = 1.5, kDropoutBackward = 1.17;
  const bool cudnn = kernel.kind == KernelKind::kCudnnAttention;
  const auto heads = static_cast<double>(attention.heads);
  const auto queries = static_cast<double>(attention.queries), keys = static_cast<double>(attention.keys);
  const auto width = static_cast<double>(attention.width);
  double share = 1;
  if (attention.causal) share = std::min(1.0, 0.5 + 0.5 * rates.causal * kBlock / std::max(keys, 1.0));
  const double products = attention.backward ? 5 : 2;
  const double blocks = heads * std::ceil(queries / kBlock);
  const double computed = cudnn ? multiple(queries, kBlock) * multiple(keys, kKeyBlock) : queries * keys;
  const double flops = products * 2 * heads * computed * width * share;
  const double waves = cudnn ? imbalance(blocks, attention.causal, device)
                             : std::max(1.0, device.multiprocessors / std::max(blocks, 1.0));
  const double ramp = width / (width + rates.head) * keys / (keys + rates.keys);
  const double peak = sustained_flops(kernel, device) * (attention.backward ? rates.backward : rates.forward) * ramp;
  double seconds = flops > 0 ? flops * waves / peak : 0;  // without keys there is no rate, and nothing to do
  if (attention.dropout && !attention.backward) seconds *= rates.dropout;
  if (cudnn && attention.dropout && attention.backward) seconds *= kDropoutBackward;
  if (cudnn && width > kWide) seconds *= attention.backward ? kWideBackward : kWideForward;
  if (attention.bias) seconds *= attention.backward ? rates.bias_backward : rates.bias;
  if (attention.backward) {
    const double gradient_bytes = 4 * heads * queries * width;
    seconds += rates.passes * gradient_bytes / device.memory_bandwidth_bytes_per_second;
  }
  return rates.launch_us * kMicrosecond * (attention.backward ? 3 : 1) + seconds;
}

}  // namespace memcalc
