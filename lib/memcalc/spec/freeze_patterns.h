// --freeze of all but some parameters, as axolotl's unfrozen_parameters tells it. Covered by
// tests/unit/fine_tuning_test.cc.
#pragma once

#include <string_view>

#include "memcalc/spec/built_rules.h"

namespace memcalc {

namespace rules {
extern const BuiltRule kFreezePattern, kFreezeUnmatched;  // built_rules.cc
}

/// In front of the first text of --freeze: patterns that names begin with, of which alone the parameters train.
inline constexpr std::string_view kFreezeExcept = "except:";

}  // namespace memcalc
