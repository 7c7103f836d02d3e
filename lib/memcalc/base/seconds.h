// Parts of a second: seconds are doubles everywhere, and constants that were measured in parts of one keep their unit.
#pragma once

namespace memcalc {

inline constexpr double kMicrosecond = 1e-6, kNanosecond = 1e-9;

}  // namespace memcalc
