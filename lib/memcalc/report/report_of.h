// The second half of estimate(): what a rank's step and its memory mean.
// Covered by tests/unit/estimate_test.cc.
#pragma once

#include <span>
#include <string>

#include "memcalc/alloc/replay.h"
#include "memcalc/report/report.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// `memory`: what the allocator made of symbolic.trace.
[[nodiscard]] Report report_of(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device,
                               const SymbolicRun& symbolic, ReplayResult memory);

/// What is assumed of the run stands behind what leads the report's own.
[[nodiscard]] Report with_assumptions(Report report, std::span<const std::string> of_run);

}  // namespace memcalc
