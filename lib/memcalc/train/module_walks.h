// How many modules a framework's walk over a model meets: model.modules(), named_modules(), model.train(). Only the
// time of Python depends on it, so that modules without parameters are counted by a share. Covered by
// tests/unit/trl_test.cc.
#pragma once

#include <cstdint>
#include <span>

#include "memcalc/models/module.h"

namespace memcalc {

struct ModuleCount {
  std::int64_t all = 0;
  std::int64_t adapted = 0;      // by peft
  std::int64_t of_adapters = 0;  // what it puts around these
};

/// Of a model with these parameters, in the order of parameters(): modules that their names tell, activations and
/// dropouts beside them, adapters.
[[nodiscard]] ModuleCount count_modules(std::span<const Parameter> parameters);

}  // namespace memcalc
