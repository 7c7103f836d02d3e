// What marks the kernels that autocast issues inside of another operator's call (Kernel::node): its conversions, which
// no Python of a model precedes.
#pragma once

#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

inline constexpr Operator kAutocast{"autocast"};

[[nodiscard]] inline bool is_of_autocast(const Kernel& kernel) { return kernel.node == &kAutocast; }

}  // namespace memcalc
