// The time of a convolution by cuDNN or PyTorch's own depthwise kernels, from those that were measured on an H100.
// Covered by tests/unit/kernel_time_test.cc.
#pragma once

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// Seconds of one pass. Median errors on shapes left out: 2 to 5 % of an H200's, 10 % of an H100's, which are of more
/// kinds. Next to no bias: over the layers of a network these errors cancel. Not told apart: dilated windows, and how
/// groups lie.
[[nodiscard]] double measured_convolution_seconds(const Kernel& kernel, const work::Convolution& convolution,
                                                  const DeviceSpec& device, const DeviceRates& rates);

}  // namespace memcalc
