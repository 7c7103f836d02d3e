// MIRRORS(torch, "cuda/UpSampleBicubic2d.cu", "2.11.0")
// MIRRORS(torch, "cuda/UpSampleBilinear2d.cu", "2.11.0")
#include "memcalc/cost/interpolation.h"

#include <algorithm>
#include <cmath>

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

bool is_cubic(const Kernel& kernel) {
  return kernel.op == &aten::kUpsampleBicubic2d || kernel.op == &aten::kUpsampleBicubic2dBackward;
}

/// upsample_bicubic2d_out_frame: a thread for each pixel of the result goes over all planes and reads 16 of the
/// operand's pixels of each. Of an H200, 216 resizes to a fortieth of to 1,300 times the pixels
/// (tests/measured/interpolation_times_h200.jsonl): half are within 15 %.
double cubic_forward_seconds(const work::Resize& resize, double pixels) {
  constexpr double kPlaneUs = 0.4, kPixelPs = 3.9;
  const auto planes = static_cast<double>(resize.planes);
  if (resize.row_major) return planes * (kPlaneUs * kMicrosecond + pixels * kPixelPs * kPicosecond);
  // Of an operand whose neighbours do not follow each other each pixel is a line of the cache. A block's warps read
  // four rows each, and of a row what 32 pixels of the result need.
  constexpr double kBlock = 1024, kWarp = 32, kRows = 4, kStridedPlaneUs = 0.8, kLineNs = 1.7;
  const auto from = static_cast<double>(resize.from_width), to = static_cast<double>(resize.to_width);
  const double columns = std::min(from, kWarp * from / to + 3);
  const double lines = std::min(pixels, kBlock) / kWarp * kRows * columns;
  return planes * (kStridedPlaneUs * kMicrosecond + lines * kLineNs * kNanosecond);
}

/// Both kernels copy where the sizes are the same.
double same_size_seconds(const work::Resize& resize) {
  constexpr double kPlaneUs = 0.17;
  return static_cast<double>(resize.planes) * kPlaneUs * kMicrosecond;
}

/// upsample_bicubic2d_backward_out_frame: each of the gradient's pixels adds to 16 of the result's, and those of one
/// wait for each other, longer in 16 bits (pairs are compared and swapped). All blocks begin with the same plane, where
/// they wait longest, and drift apart: so a time that the planes share, and one of each. Of the same resizes: half of
/// the slopes over planes within 10 %, of all 160 enlargements half within 8 %.
double cubic_backward_seconds(const work::Resize& resize, double pixels, DType dtype) {
  struct Waiting {
    double plane_us, scale_us, beyond_us;  // of each plane, by how many times as wide the gradient is, up to kSteep
    double begin_us, more_blocks;          // by pixels to each; how it grows with the number of blocks
  };
  constexpr double kSteep = 9, kFewPixels = 4096;
  const Waiting waiting = !is_half(dtype)             ? Waiting{1.8, 0.6, 0.6, 3.2, 0.17}
                          : dtype == DType::kBFloat16 ? Waiting{4, 13.3, 2.2, 75, 0.35}
                                                      : Waiting{4, 14.5, 6.4, 90, 0.5};
  const double scale = static_cast<double>(resize.to_width) / static_cast<double>(resize.from_width);
  const double each =
      waiting.plane_us + waiting.scale_us * std::min(scale, kSteep) + waiting.beyond_us * std::max(scale - kSteep, 0.0);
  const double begin =
      waiting.begin_us * scale * scale * std::pow(std::max(pixels / kFewPixels, 1.0), waiting.more_blocks);
  return (begin + static_cast<double>(resize.planes) * each) * kMicrosecond;
}

}  // namespace

bool is_interpolation(const Kernel& kernel) {
  const bool one = kernel.op == &aten::kUpsampleBilinear2d || kernel.op == &aten::kUpsampleBilinear2dBackward;
  return (one || is_cubic(kernel)) && kernel.kind == KernelKind::kImage;
}

double interpolation_seconds(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates) {
  const double slower = kMeasuredMultiprocessors / device.multiprocessors;
  const double moved = memory_seconds(kernel, device, rates.vectorized);
  const auto* resize = kernel.as<work::Resize>();
  if (is_cubic(kernel)) {
    if (resize == nullptr) return moved;
    if (resize->from_width == resize->to_width) return std::max(moved, same_size_seconds(*resize));
    const double pixels = kernel.elements / static_cast<double>(resize->planes);
    const double seconds = resize->backward ? cubic_backward_seconds(*resize, pixels, kernel.dtype)
                                            : cubic_forward_seconds(*resize, pixels);
    return std::max(moved, seconds);
  }
  const bool backward = kernel.op == &aten::kUpsampleBilinear2dBackward;
  if (resize != nullptr) {
    if (backward) return std::max(moved, scattered_pixels_seconds(kernel));
    // upsample_bilinear2d_out_frame: a thread for each pixel goes over all planes: 0.19 to 0.37 us each of an H100
    // (operator_times_h100.jsonl.gz), and 0.34 T pixels a second of an H200 where they are many (segformer's 512 x 512,
    // step_operators_h200.jsonl.gz).
    constexpr double kPlaneNs = 250, kPixelPs = 2.95;
    return std::max({moved, static_cast<double>(resize->planes) * kPlaneNs * kNanosecond,
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
