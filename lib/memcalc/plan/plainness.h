// Which of two plans people rather use, where they are about as fast. Covered by tests/measured/plan_test.cc.
#pragma once

#include "memcalc/plan/plan_space.h"

namespace memcalc {

/// What is no slower than this share is as fast: the step time is not predicted better (docs/validation.md).
inline constexpr double kAsFast = 0.03;

/// 0: torch with DDP or FSDP2 alone; each thing that has to be learnt, set up or maintained beside it adds to that.
[[nodiscard]] int strangeness_of(const Choice& choice);

}  // namespace memcalc
