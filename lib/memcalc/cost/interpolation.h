// Bilinear and cubic interpolation of images. Covered by tests/unit/kernel_time_test.cc.
#pragma once

#include "memcalc/cost/kernel_time.h"

namespace memcalc {

/// Forward or backward, but for what has the size of its operand, which is a copy.
[[nodiscard]] bool is_interpolation(const Kernel& kernel);

/// Pre: is_interpolation(kernel).
[[nodiscard]] double interpolation_seconds(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates);

}  // namespace memcalc
