// The cards that kernels were timed on: an H100 and an H200, which have the same die.
// Covered by tests/unit/kernel_time_test.cc.
#pragma once

namespace memcalc {

inline constexpr double kMeasuredMultiprocessors = 132;

}  // namespace memcalc
