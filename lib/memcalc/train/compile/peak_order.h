// The order of a graph's kernels that needs least memory, of four that inductor tries (config.reorder_for_peak_memory):
// the one that it has, "least peak memory first", breadth first and depth first. Covered by tests/unit/compile_test.cc.
// MIRRORS(torch, "_inductor/memory.py", "2.11.0")
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memcalc/base/bytes.h"

namespace memcalc::compile {

/// A buffer that a kernel writes, or that was given to the graph and may be freed in it.
struct PlannedBuffer {
  Bytes bytes = 0;
  std::int32_t writer = -1;  // a kernel; -1: it was given
  bool is_result = false;
};

/// What one kernel reads that no launch of its own writes, and what it writes: places among the buffers, each once.
struct PlannedKernel {
  std::vector<std::int32_t> reads, writes;
};

/// Places of `kernels`, each once, what writes a buffer before what reads it; none where two kernels wait for each
/// other. `kernels` are in the order in which they begin.
[[nodiscard]] std::vector<std::int32_t> order_for_peak_memory(std::span<const PlannedKernel> kernels,
                                                              std::span<const PlannedBuffer> buffers);

}  // namespace memcalc::compile
