// Whether the last step of a trace asks for the same memory as the one before it. If it does, and the allocator stands
// at its start as it stood a step earlier, replaying it changes nothing: replay.cc then stops before it.
// Covered by tests/unit/last_steps_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// Each of the two has the same number of events, and the trace ends with the second.
struct LastSteps {
  std::size_t before_last = 0;  // index of its first event
  std::size_t last = 0;
  std::int32_t block_shift = 0;       // from a block of one step to the block of the next that has its part
  std::vector<std::int32_t> carried;  // blocks older than the one before the last that it frees, in order
};

/// Nothing for a trace of fewer than three steps, or where the last two cannot ask alike.
[[nodiscard]] std::optional<LastSteps> last_steps(const Trace& trace);

/// The same requests and frees in the same order; what one step frees of the step before is freed by the other of its
/// own predecessor, and each leaves as many blocks as it frees of older ones.
[[nodiscard]] bool ask_alike(const Trace& trace, const LastSteps& steps);

}  // namespace memcalc
