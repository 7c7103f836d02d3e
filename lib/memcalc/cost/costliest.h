// Which kernels of a step take most of it. Covered by tests/unit/cost_test.cc.
#pragma once

#include <cstddef>
#include <vector>

#include "memcalc/cost/distinct_kernels.h"
#include "memcalc/cost/step_time.h"
#include "memcalc/spec/device_spec.h"

namespace memcalc {

/// Kernels of the compute stream that take most of a step, alike ones together, the longest first. `seconds`: of each.
[[nodiscard]] std::vector<CostlyKernel> costliest_of(const DistinctKernels& kernels, const std::vector<double>& seconds,
                                                     const DeviceSpec& device, std::size_t count);

}  // namespace memcalc
