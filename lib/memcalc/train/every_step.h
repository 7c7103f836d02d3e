// The symbolic run by execution of every step of the whole model, with which step_patterns.h is compared.
#pragma once

#include "memcalc/train/step.h"

namespace memcalc {

/// As run_symbolically(), whose trace it has, too; slower where --lengths makes many steps.
[[nodiscard]] SymbolicRun run_every_step(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device);

}  // namespace memcalc
