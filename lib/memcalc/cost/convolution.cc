// Convolutions as implicit products: pixels x output channels x (input channels x window). Few channels or a shallow
// sum leave the units idle; cuDNN's conversions between layouts are part of the fitted bandwidth.
#include <algorithm>
#include <cmath>

#include "memcalc/cost/kernel_time.h"

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

}  // namespace

double convolution_seconds(const Kernel& kernel, const work::Convolution& convolution, const DeviceSpec& device,
                           const ConvolutionRates& rates) {
  constexpr double kMicrosecond = 1e-6;
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
  const bool own_kernels = kernel.kind == KernelKind::kDepthwiseConvolution;
  const std::int64_t window = convolution.depth;  // one input channel
  const bool specialized = window == 9 || window == 25 || window == 49;
  double share = 0;
  if (!convolution.backward) {
    share = own_kernels   ? (window > 9 ? r.rows_forward_wide : r.rows_forward)
            : specialized ? r.last_forward
                          : r.direct_forward;
  } else if (!convolution.weight_gradient) {
    share = own_kernels ? (window > 9 ? r.rows_input_wide : r.rows_input) : specialized ? r.last_input : r.direct_input;
  } else if (own_kernels) {
    share = r.rows_weight;
  } else if (size_of(kernel.dtype) > 2) {
    share = r.direct_float32_weight;
  } else {
    share = specialized ? r.last_weight : r.direct_weight;
  }
  constexpr double kMicrosecond = 1e-6;
  // cuda/DepthwiseConv2d.cu, conv_depthwise2d_backward_kernel: a thread for each pixel of the input.
  const bool of_input = own_kernels && convolution.backward && !convolution.weight_gradient;
  const double strides = of_input ? input_pixels(kernel, convolution) / static_cast<double>(convolution.pixels) : 1;
  const double computed = std::max(strides, 1.0) * kernel.flops / (share * device.fp32_flops_per_second);
  const double moved = kernel.bytes / (rates.image.bandwidth * device.memory_bandwidth_bytes_per_second);
  return r.launch_us * kMicrosecond + std::max(computed, moved);
}

}  // namespace memcalc
