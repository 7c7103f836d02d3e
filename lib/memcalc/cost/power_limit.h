// What a card's power limit makes longer. Covered by tests/unit/cost_test.cc.
#pragma once

#include <vector>

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// Lowers the clock of a step where the card would draw more than its limit: `seconds` of each kernel get longer.
/// `waiting`: of a pipeline's stage, what it waits for the others over what it computes.
void lower_clock(const KernelList& kernels, const DeviceSpec& device, const DeviceRates& rates, double waiting,
                 std::vector<double>& seconds);

}  // namespace memcalc
