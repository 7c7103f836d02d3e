#include "memcalc/cost/regions.h"

#include "memcalc/symbolic/aten_programs.h"

namespace memcalc {

// Of an H200, in a step of maskrcnn_resnet50_fpn with four images of 800 pixels
// (tests/measured/region_kernels_h200.jsonl, torchvision 0.26). A card with another clock takes the same, as nothing
// else was measured.
namespace {

constexpr double kPicosecond = 1e-12;

/// csrc/ops/cuda/nms_kernel.cu: nms_kernel_impl compares each box with each other one (8,382 in 99 us);
/// gather_keep_from_mask is one block that goes through the boxes one after the other (in 4.4 ms).
double suppression_seconds(double boxes) {
  constexpr double kPairPs = 1.41, kBoxPs = 528'000;
  return boxes * (kBoxPs + boxes * kPairPs) * kPicosecond;
}

/// csrc/ops/cuda/roi_align_kernel.cu: each element of the result reads four pixels a sample, and its gradient is added
/// to these four atomically: 6.42 million of four samples in 133 us and, the mean of eight levels, 650 us.
double alignment_seconds(double samples, bool backward) {
  constexpr double kSamplePs = 5.2, kBackwardPs = 25.3;
  return samples * (backward ? kBackwardPs : kSamplePs) * kPicosecond;
}

}  // namespace

bool is_of_regions(const Kernel& kernel) { return kernel.op == &aten::kNms || kernel.op == &aten::kRoiAlign; }

double regions_seconds(const Kernel& kernel, const work::Rows& rows) {
  const auto count = static_cast<double>(rows.count);
  if (kernel.op == &aten::kNms) return suppression_seconds(count);
  return alignment_seconds(count * static_cast<double>(rows.width), rows.backward);
}

}  // namespace memcalc
