// What an epoch of batches of different lengths reserves as it goes on. Covered by tests/unit/epoch_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "memcalc/report/report.h"
#include "memcalc/train/step.h"

namespace memcalc {

/// Nothing where batches are alike. `memory`: with marks of steps.
[[nodiscard]] std::optional<EpochMemory> epoch_of(const SymbolicRun& symbolic, const ReplayResult& memory);

/// Steps in which the allocator gave its free segments back and asked again.
[[nodiscard]] std::int64_t retrying_steps(std::span<const StepMark> steps);

}  // namespace memcalc
