// The cards that kernels were timed on: an H100 and an H200, which have the same die.
// Covered by tests/unit/kernel_time_test.cc.
#pragma once

#include "memcalc/spec/cuda_architecture.h"
#include "memcalc/spec/device_spec.h"

namespace memcalc {

inline constexpr double kMeasuredMultiprocessors = 132;
inline constexpr double kMeasuredHalfFlops = 989.4e12;  // of the datasheet
inline constexpr double kMeasuredCycles = 67e12 / 256;  // cycles_of them

/// Multiprocessors times their clock, of the datasheet's float32: in a cycle each multiplies and adds in 128 lanes, in
/// 64 where it has as few (CUDA C++ Programming Guide, "Arithmetic Instructions").
[[nodiscard]] inline double cycles_of(const DeviceSpec& device) {
  const CudaArchitecture architecture = architecture_of(device);
  const bool half = architecture == architecture_of(6, 0) ||
                    (architecture >= CudaArchitecture::kVolta && architecture <= CudaArchitecture::kAmpere);
  return device.fp32_flops_per_second / (half ? 128 : 256);
}

}  // namespace memcalc
