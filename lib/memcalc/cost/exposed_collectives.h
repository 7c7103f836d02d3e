// Collectives that last longer than the kernels beside them. Covered by tests/unit/power_limit_test.cc.
#pragma once

#include <vector>

#include "memcalc/spec/device_rates.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// How long the compute stream waits for collectives in front of each kernel, at a gather for this; of the last kernel,
/// behind it, too. A host that is never late. `seconds`: of each kernel alone. Empty: no collective runs beside any.
[[nodiscard]] std::vector<double> exposed_collectives(const KernelList& kernels, const std::vector<double>& seconds,
                                                      const LinkRates& links);

}  // namespace memcalc
