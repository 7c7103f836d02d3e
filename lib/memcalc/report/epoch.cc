#include "memcalc/report/epoch.h"

namespace memcalc {

std::optional<EpochMemory> epoch_of(const SymbolicRun& symbolic, const ReplayResult& memory) {
  const DataSteps& steps = symbolic.data_steps;
  if (steps.simulated.empty() || memory.steps.size() != steps.simulated.size()) return std::nullopt;
  EpochMemory epoch{.steps = steps.all,
                    .simulated = static_cast<std::int64_t>(steps.simulated.size()),
                    .average_samples = steps.samples,
                    .average_tokens = steps.tokens,
                    .reserved_after_first_step = memory.steps.front().reserved,
                    .reserved_at_end = memory.steps.back().reserved};
  std::size_t peak = 0;
  for (std::size_t i = 1; i < memory.steps.size(); ++i) {
    if (memory.steps[i].peak_allocated > memory.steps[peak].peak_allocated) peak = i;
    if (memory.steps[i].reserved <= memory.steps[i - 1].reserved) continue;
    ++epoch.growing_steps;
    epoch.last_growing_step = steps.simulated[i].number;
  }
  epoch.peak_step = steps.simulated[peak].number;
  epoch.peak_rows = steps.simulated[peak].largest().rows;
  epoch.peak_columns = steps.simulated[peak].largest().columns;
  return epoch;
}

std::int64_t retrying_steps(std::span<const StepMark> steps) {
  std::int64_t count = 0, before = 0;
  for (const StepMark& step : steps) {
    if (step.retries > before) ++count;
    before = step.retries;
  }
  return count;
}

}  // namespace memcalc
