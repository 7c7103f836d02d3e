// Convolutions as implicit products: pixels x output channels x (input channels x window). Few channels or a shallow
// sum leave the units idle; cuDNN's conversions between layouts are part of the fitted bandwidth.
#include <algorithm>

#include "memcalc/cost/kernel_time.h"

namespace memcalc {

double convolution_seconds(const Kernel& kernel, const work::Convolution& convolution, const DeviceSpec& device,
                           const ConvolutionRates& rates) {
  constexpr double kMicrosecond = 1e-6;
  const auto channels = static_cast<double>(convolution.channels);
  const auto depth = static_cast<double>(convolution.depth);
  const double ramp = channels / (channels + rates.channels) * depth / (depth + rates.depth);
  constexpr double kVector = 4;  // elements of a 128-bit load, in float32
  const double few = convolution.group_channels > 0 && convolution.group_channels < kVector ? rates.few : 1;
  const double peak = few * peak_flops(kernel, device) * ramp * (convolution.backward ? rates.backward : rates.forward);
  const double computed = kernel.flops > 0 ? kernel.flops / peak : 0;
  const double moved = kernel.bytes / (rates.bandwidth * device.memory_bandwidth_bytes_per_second);
  return rates.launch_us * kMicrosecond + std::max(computed, moved);
}

}  // namespace memcalc
