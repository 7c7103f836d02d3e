// Convolutions as implicit products: pixels x output channels x (input channels x window). Few channels or a shallow
// sum leave the units idle; cuDNN's conversions between layouts are part of the fitted bandwidth.
#include <algorithm>
#include <cmath>

#include "memcalc/base/seconds.h"
#include "memcalc/cost/kernel_time.h"
#include "memcalc/cost/measured_card.h"

namespace memcalc {

namespace {

/// Pixels of all images that enter, of the bytes of an ideal kernel: it reads or writes images, results and filter
/// once.
double input_pixels(const Kernel& kernel, const work::Convolution& convolution) {
  const auto groups = static_cast<double>(convolution.groups), pixels = static_cast<double>(convolution.pixels);
  const auto channels = static_cast<double>(convolution.channels), depth = static_cast<double>(convolution.depth);
  const double elements = kernel.bytes / static_cast<double>(size_of(kernel.dtype));
  const double images = elements - groups * channels * pixels - groups * channels * depth;
  return std::max(1.0, images / (groups * std::max(convolution.group_channels, 1.0)));
}

// cuDNN's depthwise kernels in profiled steps of H200s and H100s (tests/measured/step_operators_h200.jsonl.gz,
// network_operators_h100.jsonl.gz), over the rates of DepthwiseRates.
constexpr double kLastHalfForward = 2.1;  // conv2d_c1_k1_nhwc_specialized; not with fewer than eight images
constexpr double kLastHalfInput = 1.12;
constexpr double kRowsHalfWeight = 0.32;  // wgrad2d_shmem_tiling
constexpr double kStrided = 1.5;          // pixels that enter over those of the result
constexpr double kStridedInput = 0.0046;  // dgrad2d_grouped_direct_kernel: of the datasheet's float32 FLOP/s
// wgrad2d_grouped_direct_kernel in float32: a block for each channel goes over its pixels, tap by tap, and those of a
// multiprocessor share it. 14 shapes of 96 to 1,024 channels are within 11 %.
constexpr double kTapNs = 1.43;
constexpr std::int64_t kMostTf32Channels = 192;  // an implicit product in TF32 with no more; 256 have none

/// That product, and the images that are laid out for it before.
double tf32_weight_seconds(const Kernel& kernel, const DeviceSpec& device) {
  constexpr double kComputes = 0.0073, kMoves = 0.055;  // of the datasheet's float32 FLOP/s and bytes
  return kernel.flops / (kComputes * device.fp32_flops_per_second) +
         kernel.bytes / (kMoves * device.memory_bandwidth_bytes_per_second);
}

/// cuda/DepthwiseConv2d.cu: picoseconds of a pixel, of all 132 multiprocessors. Windows of 3 x 3 and 5 x 5 have kernels
/// of their own, all others share one.
struct PixelPs {
  double three, five, launched, tap;  // `launched` and `tap`: of the shared one
  double strided_three, strided;      // with a stride, over those without

  [[nodiscard]] double of(std::int64_t window, bool is_strided) const {
    if (window == 9) return three * (is_strided ? strided_three : 1);
    const double ps = window == 25 ? five : launched + static_cast<double>(window) * tap;
    return ps * (is_strided ? strided : 1);
  }
};
constexpr PixelPs kForward = {
    .three = 9.6, .five = 16.3, .launched = 9, .tap = 0.49, .strided_three = 1.26, .strided = 1.11};
constexpr PixelPs kHalfForward = {
    .three = 9.6, .five = 17.4, .launched = 9, .tap = 0.535, .strided_three = 1.1, .strided = 1.06};
constexpr PixelPs kInput = {
    .three = 17.2, .five = 17.2, .launched = 8, .tap = 0.7, .strided_three = 0.92, .strided = 1.25};
constexpr PixelPs kHalfInput = {
    .three = 16.8, .five = 19.1, .launched = 8, .tap = 0.775, .strided_three = 0.97, .strided = 1.18};

/// conv_depthwise2d_grad_weight_kernel: a block for each channel and tap, in which each of eight warps goes over every
/// eighth image, 32 pixels at a time.
double own_weight_seconds(const work::Convolution& convolution, double slower) {
  constexpr double kLanes = 32, kMostWarps = 8, kPerSecond = 0.75e12, kImageRounds = 2, kBlockNs = 1.57;
  constexpr double kRoundUs = 0.138, kLaunchUs = 5.1;
  const auto images = static_cast<double>(std::max<std::int64_t>(convolution.images, 1));
  const double warps = std::min(images, kMostWarps);
  const double rounds = kImageRounds + std::ceil(static_cast<double>(convolution.pixels) / images / kLanes);
  const auto blocks = static_cast<double>(convolution.groups * convolution.channels * convolution.depth);
  const double all = blocks * (images * rounds * kLanes / kPerSecond + kBlockNs * kNanosecond * warps / kMostWarps);
  const double chain = (std::ceil(images / warps) * rounds * kRoundUs + kLaunchUs) * kMicrosecond;
  return std::hypot(all * slower, chain);
}

}  // namespace

double convolution_seconds(const Kernel& kernel, const work::Convolution& convolution, const DeviceSpec& device,
                           const ConvolutionRates& rates) {
  const auto channels = static_cast<double>(convolution.channels);
  const auto depth = static_cast<double>(convolution.depth);
  const double ramp = channels / (channels + rates.channels) * depth / (depth + rates.depth);
  constexpr double kVector = 4;  // elements of a 128-bit load, in float32
  const double few = convolution.group_channels > 0 && convolution.group_channels < kVector ? rates.few : 1;
  const double peak =
      few * sustained_flops(kernel, device) * ramp * (convolution.backward ? rates.backward : rates.forward);
  const double computed = kernel.flops > 0 ? kernel.flops / peak : 0;
  const double moved = kernel.bytes / (rates.bandwidth * device.memory_bandwidth_bytes_per_second);
  return rates.launch_us * kMicrosecond + std::max(computed, moved);
}

bool is_depthwise(const work::Convolution& convolution) {
  return convolution.groups > 1 && convolution.group_channels == 1;
}

// Which kernel runs: tests/measured/depthwise_kernels_h200.jsonl. Its speed is that of its multiply-adds, unless the
// window is small and memory is slower.
double depthwise_seconds(const Kernel& kernel, const work::Convolution& convolution, const DeviceSpec& device,
                         const DeviceRates& rates) {
  const DepthwiseRates& r = rates.depthwise;
  const std::int64_t window = convolution.depth;  // one input channel
  const bool specialized = window == 9 || window == 25 || window == 49;
  const bool half = is_half(kernel.dtype), last = convolution.channels_last;
  double share = 0, chain = 0;
  if (!convolution.backward) {
    share = specialized ? r.last_forward * (half && last ? kLastHalfForward : 1) : r.direct_forward;
  } else if (!convolution.weight_gradient) {
    const bool strided = input_pixels(kernel, convolution) > kStrided * static_cast<double>(convolution.pixels);
    share = specialized && strided ? kStridedInput
            : specialized          ? r.last_input * (half ? kLastHalfInput : 1)
                                   : r.direct_input;
  } else if (half) {
    share = specialized ? r.last_weight * (last ? 1 : kRowsHalfWeight) : r.direct_weight;
  } else if (allows_tf32(kernel) && computes_tf32(device) && convolution.groups <= kMostTf32Channels) {
    return tf32_weight_seconds(kernel, device);
  } else {
    share = r.direct_float32_weight;
    chain = static_cast<double>(convolution.pixels) * static_cast<double>(window) * kTapNs * kNanosecond;
  }
  const double computed = kernel.flops / (share * device.fp32_flops_per_second);
  const double moved = kernel.bytes / (rates.image.bandwidth * device.memory_bandwidth_bytes_per_second);
  return r.launch_us * kMicrosecond + chain + std::max(computed, moved);
}

// A thread for each pixel of the result, or of the input, goes over the taps of the window: memory never decides.
// Of 96 kernels that an H200 ran alone (tests/measured/operator_draws_h200.jsonl.gz) half are within 1 to 4 %, of 1,500
// to 1,800 of an H100 (convolution_passes_h100.jsonl.gz) within 6 to 7.
double own_depthwise_seconds(const Kernel& kernel, const work::Convolution& convolution, const DeviceSpec& device) {
  constexpr double kLaunchUs = 3, kPicosecond = 1e-12;
  const double slower = kMeasuredMultiprocessors / device.multiprocessors;
  if (convolution.weight_gradient) return own_weight_seconds(convolution, slower);
  const double pixels = static_cast<double>(convolution.pixels) * static_cast<double>(convolution.channels);
  const double entering = input_pixels(kernel, convolution);
  const bool strided = entering > kStrided * static_cast<double>(convolution.pixels);
  const bool half = is_half(kernel.dtype), backward = convolution.backward;
  const PixelPs& ps = backward ? (half ? kHalfInput : kInput) : half ? kHalfForward : kForward;
  const double of_group = backward ? entering : pixels;
  return kLaunchUs * kMicrosecond +
         of_group * static_cast<double>(convolution.groups) * ps.of(convolution.depth, strided) * kPicosecond * slower;
}

}  // namespace memcalc
