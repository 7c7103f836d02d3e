// specs/ as tests read it: once for all tests of a process.
#pragma once

#include "memcalc/spec/registry.h"
#include "support/paths.h"

namespace memcalc::test {

[[nodiscard]] inline const SpecRegistry& registry() {
  static const SpecRegistry specs(specs_dir().string());
  return specs;
}

}  // namespace memcalc::test
