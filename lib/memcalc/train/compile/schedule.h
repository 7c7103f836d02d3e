// What inductor makes of a graph: which values get a buffer, in which order, and until when each lives. Pointwise
// operators are inlined into what reads them, reductions and kernels write their results (torch/_inductor: graph.py,
// ir.py mark_reuse, scheduler.py, codegen/wrapper.py).
// MIRRORS(torch, "_inductor/codegen/wrapper.py", "2.11.0")
// MIRRORS(torch, "_inductor/graph.py", "2.11.0")
// MIRRORS(torch, "_inductor/ir.py", "2.11.0")
// MIRRORS(torch, "_inductor/scheduler.py", "2.11.0")
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "memcalc/train/compile/graph.h"

namespace memcalc::compile {

/// One kernel that writes a buffer, in the order of the generated code.
struct Launch {
  NodeIndex node = kNone;
  NodeIndex in_place = kNone;         // the buffer that it takes over instead of a new one
  std::vector<NodeIndex> reads;       // buffers behind its expression
  std::vector<NodeIndex> dead_after;  // buffers that nothing reads from here on
};

struct Schedule {
  std::vector<Launch> launches;
  std::vector<NodeIndex> never_read;  // given to the graph, but read by no kernel: dead at once
};

/// What make_schedule was asked, which decides who may take over whose buffer.
struct ScheduledPart {
  const JointGraph& graph;
  std::span<const NodeIndex> results, given;
  bool is_backward = false;
};

/// The same launches in the order of kernels that needs least memory (peak_order.h), from the launch `first` on.
/// `kernels`: the kernel of each launch. A kernel's buffers die behind its last launch. Where kernels wait for each
/// other the order stays.
[[nodiscard]] Schedule reordered(const ScheduledPart& part, Schedule schedule, std::span<const std::int32_t> kernels,
                                 std::size_t first);

/// `results` are computed from `given` (buffers that exist) and from leaves. `returned` outlive the graph.
/// In backward a given buffer that dies may be written over, unless Python was given it too (donated buffers).
[[nodiscard]] Schedule make_schedule(const JointGraph& graph, std::span<const NodeIndex> results,
                                     std::span<const NodeIndex> given, bool is_backward);

}  // namespace memcalc::compile
