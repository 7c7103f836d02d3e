// MIRRORS(torch, "cuda/Normalization.cuh", "2.11.0")
// Batch norm of images: cuDNN's kernels, and PyTorch's own, which bfloat16 and large batches take.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "memcalc/base/bytes.h"
#include "memcalc/base/seconds.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/measured_card.h"
#include "memcalc/spec/cuda_architecture.h"

namespace memcalc {

namespace {

/// Of a channel's values, which cuDNN's batch norm reads once where a block can hold them: forward those of the input,
/// backward of the gradient, too. Of 985 kernels on an H100 and 67 on an H200, none that reads once holds more than
/// 110,592 bytes, and none that reads again fewer than 131,072 (network_operators_h100.jsonl.gz,
/// step_operators_h200.jsonl.gz).
constexpr double kHeldBytes = 112 * 1024;

/// bn_fw_tr_1C11_singleread, bn_bw_1C11_singleread: the same kernels, half of them within 10 %.
double held_channels_seconds(const Kernel& kernel, const work::Rows& rows, const DeviceSpec& device,
                             const MemoryRates& rates) {
  constexpr double kLaunchUs = 3, kChannelUs = 0.011, kBackwardShare = 0.7, kHalfBackwardShare = 0.85;
  const double share = !rows.backward ? 1 : is_half(kernel.dtype) ? kHalfBackwardShare : kBackwardShare;
  const double bytes = static_cast<double>(rows.count) * static_cast<double>(rows.width) *
                       static_cast<double>(size_of(kernel.dtype)) * (rows.backward ? 3 : 2);
  const double moved = bytes / (share * rates.bandwidth * device.memory_bandwidth_bytes_per_second);
  return kLaunchUs * kMicrosecond + std::hypot(moved, static_cast<double>(rows.count) * kChannelUs * kMicrosecond);
}

/// bn_bw_1C11_kernel_new: a block goes over a channel twice, five tensors in all, and memory is shared by as many
/// channels as there are. 126 kernels of H200s and H100s were looked at (step_operators_h200.jsonl.gz,
/// network_operators_h100.jsonl.gz and the other of H100s); of 162 others half are within 8 % (H100, float32), 5 (H200)
/// and 4 (16 bits), before 12, 8 and 9. Where both are alike Hopper hides one behind the other. Volta, Turing and the
/// A100 do not: of 80 such kernels of 8 to 64 channels and 0.5 to 22 million values each, in 16 bits (A100 and V100,
/// cuDNN 8.2, xwang233/code-snippet, batchnorm3d-channels-last of a9840ad, read 2026-11-30) the sum of both tells an
/// A100's 2 % too long in the median (nine in ten within 7), a V100's 9 % (12); Hopper's rule 14 and 15 % too short
/// (25, 34). An RTX 2070 SUPER's of 64 channels are told 6 % too long. Of compute capability 8.6 and 8.9 none were
/// found.
double read_again_seconds(const Kernel& kernel, const work::Rows& rows, const DeviceSpec& device, double chain_ns) {
  constexpr double kTensors = 5, kShare = 0.73, kHalfShare = 0.6, kLaunchUs = 1;
  const double values = static_cast<double>(rows.count) * static_cast<double>(rows.width);
  const double bytes = kTensors * values * static_cast<double>(size_of(kernel.dtype));
  const double share = is_half(kernel.dtype) ? kHalfShare : kShare;
  const double moved = bytes / (share * device.memory_bandwidth_bytes_per_second);
  const double chain = static_cast<double>(rows.width) * chain_ns * kNanosecond;
  const CudaArchitecture architecture = architecture_of(device);
  if (architecture >= CudaArchitecture::kVolta && architecture <= CudaArchitecture::kAmpere) {
    return kLaunchUs * kMicrosecond + chain + moved;
  }
  return kLaunchUs * kMicrosecond + std::cbrt(chain * chain * chain + moved * moved * moved);
}

/// getNumThreads of the header: at least as many as there are values, up to a block.
std::int64_t threads_for(std::int64_t values) {
  constexpr std::int64_t kLeast = 32, kMost = 512;
  std::int64_t threads = kLeast;
  while (threads < kMost && threads < values) threads *= 2;
  return threads;
}

/// A step of a block, which waits for what it loads: for the second-level cache, or for memory, where the tensors that
/// it reads are larger than the cache keeps of what was just written.
struct Step {
  double cached_us, memory_us;  // what memory adds
  double shared_us;             // where a multiprocessor has many blocks: of each
};

/// The longer of two, and up to a fifth more where they are alike.
double longer_of(double a, double b) {
  const auto square = [](double value) { return value * value; };
  return std::sqrt(std::sqrt(square(square(a)) + square(square(b))));
}

/// Without others on its multiprocessor.
double step_alone_us(const Step& step, double bytes) {
  constexpr double kCached = 14e6, kNotCached = 40e6;
  const double missed = std::clamp((bytes - kCached) / (kNotCached - kCached), 0.0, 1.0);
  return step.cached_us + missed * step.memory_us;
}

double step_us(const Step& step, double bytes, double blocks_of_multiprocessor) {
  return longer_of(step_alone_us(step, bytes), step.shared_us * blocks_of_multiprocessor);
}

/// PyTorch's own, row-major: a block of 512 threads goes over a channel, as many images at once as it has room for, so
/// that images of 14 x 14 pixels keep 196 of 256 threads busy, those of 6 x 6 pixels 36 of 64, and powers of two all.
/// Of 631 kernels of each kind in profiled steps of H100s and H200s (network_operators_h100.jsonl.gz,
/// step_operators_h100.jsonl.gz, step_operators_h200.jsonl.gz), of whose half by the runs' names the constants are,
/// the other half are within 6 % (moments, backward) and 1.2 % (the images that are made of them).
double contiguous_seconds(const Kernel& kernel, const work::Rows& rows, const DeviceSpec& device) {
  constexpr std::int64_t kThreads = 512, kLeastThreads = 64, kMostBlocks = 256 * 1024;
  constexpr double kWarp = 32;
  constexpr Step kMoments = {.cached_us = 0.227, .memory_us = 0.194, .shared_us = 0.132};
  constexpr Step kBackward = {.cached_us = 0.58, .memory_us = 0.335, .shared_us = 0.342};
  constexpr double kMomentsUs = 3.7, kBackwardUs = 3.6, kUpdateUs = 1.5, kImagesUs = 1.9;
  const std::int64_t pixels = std::max<std::int64_t>(rows.width / rows.images, 1), images = rows.images;
  const std::int64_t threads = threads_for(pixels);
  const auto steps =
      static_cast<double>(ceil_div(images, std::max<std::int64_t>(kThreads / threads, 1)) * ceil_div(pixels, threads));
  const auto channels = static_cast<double>(rows.count);
  const double bytes = channels * static_cast<double>(rows.width) * static_cast<double>(size_of(kernel.dtype));
  const double of_multiprocessor = channels / device.multiprocessors;
  if (rows.backward) {
    return (kBackwardUs + steps * step_us(kBackward, 2 * bytes, of_multiprocessor)) * kMicrosecond;
  }
  const double moments = kMomentsUs + steps * step_us(kMoments, bytes, of_multiprocessor);
  // batch_norm_transform_input_kernel: blocks for images of a channel; a block takes a multiprocessor as long as eight
  // warps' steps do, and few blocks wait for memory as those above.
  const std::int64_t wide = std::max(threads_for(pixels / 4), std::min(threads, kLeastThreads));
  const std::int64_t at_once = std::max<std::int64_t>(kLeastThreads / wide, 1);
  const std::int64_t blocks =
      std::clamp<std::int64_t>(kMostBlocks / std::max<std::int64_t>(rows.count, 1), 1, ceil_div(images, at_once));
  const auto each = static_cast<double>(ceil_div(pixels, wide));
  constexpr Step kWarpStep = {.cached_us = 0.0471e-3, .memory_us = 0.0226e-3, .shared_us = 0};
  constexpr double kBlockUs = 0.585e-3;
  const double slower = kMeasuredMultiprocessors / device.multiprocessors;
  const double warps = channels * static_cast<double>(images) * each * static_cast<double>(wide) / kWarp;
  const double begun = channels * static_cast<double>(blocks) * kBlockUs;
  const double stepped = longer_of(warps * step_alone_us(kWarpStep, bytes), begun);
  const double waited =
      static_cast<double>(ceil_div(ceil_div(images, at_once), blocks)) * each * step_alone_us(kMoments, bytes);
  return (moments + kUpdateUs + kImagesUs + std::max(slower * stepped, waited)) * kMicrosecond;
}

}  // namespace

/// cuDNN, and PyTorch's own with the channels innermost: a block goes over a channel.
double batch_norm_seconds(const Kernel& kernel, const work::Rows& rows, const DeviceSpec& device,
                          const DeviceRates& rates) {
  const auto count = static_cast<double>(rows.count), width = static_cast<double>(rows.width);
  const BlockRates& blocks = rates.blocks;
  const std::string_view name = kernel.op->name;
  const bool cudnn = name.find("cudnn") != std::string_view::npos;
  if (!cudnn && rows.images > 0) return contiguous_seconds(kernel, rows, device);
  const ChannelRates& of = cudnn ? (rows.backward ? blocks.cudnn_batch_norm_backward : blocks.cudnn_batch_norm)
                                 : (rows.backward ? blocks.batch_norm_backward : blocks.batch_norm);
  double chain = width * of.chain_ns;
  // cuda/Normalization.cuh, batch_norm_elementwise: where a block's chain over a channel decides the moments, the
  // image that is made of them comes after. Of mobilenet_v2's on an H200 (step_operators_h200.jsonl.gz).
  constexpr double kElementwisePerSecond = 0.49e12, kNanoseconds = 1e9;
  if (!cudnn && !rows.backward) {
    chain +=
        kNanoseconds * kernel.elements * kMeasuredMultiprocessors / (kElementwisePerSecond * device.multiprocessors);
  }
  double shared = count * width * static_cast<double>(size_of(kernel.dtype)) * of.byte_ns / device.multiprocessors;
  const double held = width * static_cast<double>(size_of(kernel.dtype)) * (rows.backward ? 2 : 1);
  if (cudnn && held <= kHeldBytes) return held_channels_seconds(kernel, rows, device, rates.image);
  if (cudnn && rows.backward) return read_again_seconds(kernel, rows, device, of.chain_ns);
  if (cudnn) {
    // A block goes over a channel, element by element whatever their type, and the multiprocessor with the most
    // blocks decides. Of 985 on an H100 in float32 and 164 in 16 bits (network_operators_h100.jsonl.gz).
    constexpr double kFloatBytes = 4, kHalfForwardChain = 1.2;
    if (is_half(kernel.dtype)) chain *= kHalfForwardChain;
    shared = std::ceil(count / device.multiprocessors) * width * kFloatBytes * of.byte_ns;
  }
  return of.launch_us * kMicrosecond + std::max(chain, shared) * kNanosecond;
}

}  // namespace memcalc
