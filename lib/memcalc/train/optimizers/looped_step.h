// What optimizers launch that go through their parameters in Python, one operator after the other: both Adafactors.
// Covered by tests/unit/optimizers_test.cc.
#pragma once

#include "memcalc/spec/training_spec.h"
#include "memcalc/symbolic/tensor.h"
#include "memcalc/train/optimizers/rule.h"

namespace memcalc {

[[nodiscard]] bool is_looped(Optimizer optimizer);

/// The kernels of one parameter, and where Python waits for the card's answer. Pre: is_looped(rule.optimizer)
void record_looped_step(const OptimizerRule& rule, const Tensor& parameter);

}  // namespace memcalc
