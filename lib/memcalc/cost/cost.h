// The time of a step, by the clocks of timeline.h. What enters is the KernelList and the card's rates; what leaves says
// where the time goes. Covered by tests/unit/cost_test.cc.
#pragma once

#include <cstdint>

#include "memcalc/cost/step_time.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/first_calls.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// What a list of kernels is.
enum class Costed : std::uint8_t { kStep, kCall };

/// One optimizer step in the steady state, when the host runs ahead as far as the queue and synchronisation let it, the
/// mean where a generation serves several (Kernel::share); or a call of a model, from an idle card until it has ended.
/// `first_calls`: of an average step, where steps differ in size. `waiting`: of a pipeline's stage, what it waits for
/// the others over what it computes. Pre: missing_rates(kernels, device) names nothing.
[[nodiscard]] StepTime cost(const KernelList& kernels, const DeviceSpec& device, const DeviceRates& rates,
                            Costed what = Costed::kStep, const FirstCallCounts& first_calls = {}, double waiting = 0);

}  // namespace memcalc
