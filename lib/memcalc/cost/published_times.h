// Operators that others timed by shape on a card that was not measured here:
// specs/measured/b200-sxm-180gb/operator_times.txt. Covered by tests/unit/published_rates_test.cc.
#pragma once

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// How many times as long as its formula says an operator takes: of the nearest that were timed the median. 1: none
/// were.
[[nodiscard]] double published_ratio(const Kernel& kernel, const work::Product& product, const DeviceSpec& device,
                                     const DeviceRates& rates);
[[nodiscard]] double published_ratio(const Kernel& kernel, const work::Attention& attention, const DeviceSpec& device,
                                     const DeviceRates& rates);

}  // namespace memcalc
