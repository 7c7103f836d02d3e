// Adam's foreach step, which Muon's companion takes too.
#pragma once

#include "memcalc/train/optimizers/rule.h"

namespace memcalc {

void adam_foreach_step(OptimizerMemory& memory, const ParameterGroup& group);

}  // namespace memcalc
