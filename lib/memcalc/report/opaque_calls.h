// The calls of a recorded program that memcalc does not look into, found in the kernels of a step. Covered by
// tests/unit/opaque_calls_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/report/report.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// Of a step, in the order in which it makes them.
[[nodiscard]] std::vector<OpaqueCalls> opaque_calls(const KernelList& kernels);

/// "my_function (12 calls), other (1 call)": at least one.
[[nodiscard]] std::string text_of(const std::vector<OpaqueCalls>& calls);

}  // namespace memcalc
