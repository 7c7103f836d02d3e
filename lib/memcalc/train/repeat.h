// The third step of a run asks for memory exactly as the second did, so it is copied instead of executed.
#pragma once

#include <cstddef>

#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// Where a step begins in a trace.
struct StepMark {
  std::size_t event = 0;
  std::size_t block = 0;
};

[[nodiscard]] inline StepMark mark_step(const Trace& trace) { return {trace.events.size(), trace.blocks.size()}; }

/// Appends a copy of the step that begins at `start` and ends with the trace. Blocks that the step took over from the
/// one before it (gradients, the last batch) correspond to the ones it leaves behind, in the order in which they were
/// allocated. False, and nothing appended, where the two sets do not match: then the step is no steady one.
[[nodiscard]] bool repeat_step(Trace& trace, const StepMark& start);

}  // namespace memcalc
