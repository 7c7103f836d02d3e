// The kernels that inductor makes of a schedule: launches that share data and a size become one, which reads what lies
// outside of it once and writes only what is read outside of it (torch/_inductor/scheduler.py, fuse_nodes). Sums over
// columns stay apart from what makes their operand, unless a kernel over its rows takes them along
// (reduction_splits.h).
// Covered by tests/unit/compile_test.cc.
// MIRRORS(torch, "_inductor/scheduler.py", "2.11.0")
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "memcalc/symbolic/kernel_list.h"
#include "memcalc/train/compile/graph.h"
#include "memcalc/train/compile/schedule.h"

namespace memcalc::compile {

/// What one part of a graph runs: inductor's fused kernels, and of `eager`, the kernels of the same operators called
/// one by one, those that stay kernels of their own (products, convolutions, attention, scatters, what waits). The
/// FLOPs of the others count on. A reduction with few results for a card of so many `multiprocessors` is two kernels.
/// Pre: `schedule` computes `results` of `graph` from `given`.
[[nodiscard]] KernelList fused_kernels(const JointGraph& graph, const Schedule& schedule,
                                       std::span<const NodeIndex> given, std::span<const NodeIndex> results,
                                       const KernelList& eager, std::int64_t multiprocessors);

/// The kernel of each launch of the same, numbered from 0; products and their like are kernels of their own.
[[nodiscard]] std::vector<std::int32_t> kernels_of_launches(const JointGraph& graph, const Schedule& schedule,
                                                            std::span<const NodeIndex> given,
                                                            std::span<const NodeIndex> results,
                                                            std::int64_t multiprocessors);

}  // namespace memcalc::compile
