// The time of a step: the host issues kernels one after the other, each stream of the card runs them in order, and
// whichever is behind decides. What enters is the KernelList and the card's rates; what leaves says where the time
// goes. Covered by tests/unit/cost_test.cc.
#pragma once

#include <cstdint>

#include "memcalc/cost/step_time.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// One optimizer step in the steady state, when the host runs ahead as far as the queue and synchronisation let it.
/// Pre: missing_rates(kernels, device) names nothing.
[[nodiscard]] StepTime cost(const KernelList& kernels, const DeviceSpec& device, const DeviceRates& rates);

/// Seconds that the host takes to issue this operator, with the views and autograd nodes before it.
[[nodiscard]] double host_seconds(const Kernel& kernel, const HostRates& rates);

/// How many times an average host's time the slowest of some ranks takes, whose times have this standard deviation over
/// their mean: at their collectives the others wait for it.
[[nodiscard]] double slowest_of(std::int64_t ranks, double spread);

}  // namespace memcalc
