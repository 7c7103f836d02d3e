// How much of its datasheet a card's memory-bound kernels reach that another card's were measured of.
// Covered by tests/unit/published_rates_test.cc.
#pragma once

#include <array>

#include "memcalc/spec/device_rates.h"

namespace memcalc {

/// Of one kernel that reaches `bandwidth`, a share of the datasheet's rate, on the card that was measured: its share on
/// a card with memory of `bytes_per_second`. carry_over() says what is assumed.
[[nodiscard]] double carried_bandwidth(const MemoryScaling& from, double bandwidth, double bytes_per_second,
                                       double multiprocessors);

/// What carry_over() changes: the kernels that go at the memory's rate, but lists of optimizers.
[[nodiscard]] std::array<MemoryRates*, 11> memory_bound_groups(DeviceRates& rates);

}  // namespace memcalc
