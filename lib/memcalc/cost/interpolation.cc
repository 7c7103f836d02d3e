// MIRRORS(torch, "cuda/UpSampleBilinear2d.cu", "2.11.0")
#include "memcalc/cost/interpolation.h"

#include <algorithm>

#include "memcalc/base/seconds.h"
#include "memcalc/cost/measured_card.h"
#include "memcalc/symbolic/aten.h"

namespace memcalc {

namespace {

constexpr double kPicosecond = 1e-12;

/// Pixels of the larger image to one of the smaller.
double pixels_to_each(const Kernel& kernel) {
  const double smaller = kernel.bytes / static_cast<double>(size_of(kernel.dtype)) - kernel.elements;
  return kernel.elements / std::max(smaller, 1.0);
}

/// upsample_bilinear2d_backward_out_frame: each pixel of the result adds to four of the input's, and those of one wait
/// for each other, longer in 16 bits (pairs are compared and swapped). Of an H100:
/// tests/measured/operator_times_h100.jsonl.gz, scales of 2, 4 and 8.
double scattered_pixels_seconds(const Kernel& kernel) {
  const double to_each = pixels_to_each(kernel);
  return kernel.elements * (is_half(kernel.dtype) ? 8.2 + 3.16 * to_each : 11.3 + 0.52 * to_each) * kPicosecond;
}

}  // namespace

bool is_bilinear(const Kernel& kernel) {
  const bool one = kernel.op == &aten::kUpsampleBilinear2d || kernel.op == &aten::kUpsampleBilinear2dBackward;
  return one && kernel.kind == KernelKind::kImage;
}

double bilinear_seconds(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates) {
  const double slower = kMeasuredMultiprocessors / device.multiprocessors;
  const bool backward = kernel.op == &aten::kUpsampleBilinear2dBackward;
  const double moved = memory_seconds(kernel, device, rates.vectorized);
  if (const auto* planes = kernel.as<work::Rows>()) {
    if (backward) return std::max(moved, scattered_pixels_seconds(kernel));
    // upsample_bilinear2d_out_frame: a thread for each pixel goes over all planes: 0.19 to 0.37 us each of an H100
    // (operator_times_h100.jsonl.gz), and 0.34 T pixels a second of an H200 where they are many (segformer's 512 x 512,
    // step_operators_h200.jsonl.gz).
    constexpr double kPlaneNs = 250, kPixelPs = 2.95;
    return std::max({moved, static_cast<double>(planes->count) * kPlaneNs * kNanosecond,
                     kernel.elements * kPixelPs * kPicosecond * slower});
  }
  // upsample_bilinear2d_nhwc_out_frame and its backward, channels last: an index calculation for each element, and
  // atomic additions. Of twelve kernels of segformer on an H200, scales of 2, 4 and 8 (step_operators_h200.jsonl.gz).
  constexpr double kForwardPs = 9.2, kBackwardPs = 8.7, kHalfBackwardPs = 11.8, kSharedPs = 0.095;
  const double ps = !backward               ? kForwardPs
                    : is_half(kernel.dtype) ? kHalfBackwardPs + kSharedPs * pixels_to_each(kernel)
                                            : kBackwardPs;
  return std::max(moved, kernel.elements * ps * kPicosecond * slower);
}

}  // namespace memcalc
