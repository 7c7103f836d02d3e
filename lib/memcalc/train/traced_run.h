// The symbolic run of a module that was traced: its recorded passes inside a plain loop, with optimizer, loss scaler,
// clipping and accumulation of this library. Covered by tests/unit/traced_run_test.cc.
#pragma once

#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/symbolic/traced_step.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// Of `options` the optimizer, accumulation, clipping and expandable segments; the rest is as the module was traced.
/// Throws Error(kUsage) for another precision or batch size, or the Trainer.
[[nodiscard]] ResolvedRun resolve(const TracedStep& traced, const RunOptions& options);

/// Throws Error(kInput) for a trace that is not one: blocks, parameters or operators out of range.
[[nodiscard]] SymbolicRun run_symbolically(const TracedStep& traced, const RunSpec& run, const DeviceSpec& device);

}  // namespace memcalc
