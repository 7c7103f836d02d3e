// Bilinear interpolation of images. Covered by tests/unit/kernel_time_test.cc.
#pragma once

#include "memcalc/cost/kernel_time.h"

namespace memcalc {

/// Forward or backward, but for what has the size of its operand, which is a copy.
[[nodiscard]] bool is_bilinear(const Kernel& kernel);

/// Pre: is_bilinear(kernel).
[[nodiscard]] double bilinear_seconds(const Kernel& kernel, const DeviceSpec& device, const DeviceRates& rates);

}  // namespace memcalc
