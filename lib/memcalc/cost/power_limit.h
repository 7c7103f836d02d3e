// What a card's power limit makes longer. Covered by tests/unit/power_limit_test.cc.
#pragma once

#include <vector>

#include "memcalc/cost/distinct_kernels.h"
#include "memcalc/cost/issue_times.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"

namespace memcalc {

/// Whether products alone would draw more than the card may.
[[nodiscard]] bool has_power_limit(const DeviceSpec& device, const PowerRates& power);

/// Lowers the clock of a step where the card would draw more than its limit: `seconds` of each kernel get longer.
/// `issuing`: of the same kernels with autograd. `waits`: for collectives, in front of each kernel; empty: for none.
/// `waiting`: of a pipeline's stage, what it waits for the others over what it computes. Pre: has_power_limit(); equal
/// kernels have equal seconds; afterwards they have not.
void lower_clock(const DistinctKernels& kernels, const DeviceSpec& device, const DeviceRates& rates,
                 IssueTimes& issuing, const std::vector<double>& waits, double waiting, std::vector<double>& seconds);

}  // namespace memcalc
