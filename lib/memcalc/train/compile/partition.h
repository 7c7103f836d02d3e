// functorch/partitioners.py, min_cut_rematerialization_partition: which values the forward keeps for the backward. A
// value that is cheap to compute again, and would be fused away, is computed again; of the rest, the smallest set that
// separates forward from backward is kept.
#pragma once

#include <vector>

#include "memcalc/train/compile/graph.h"

namespace memcalc::compile {

/// The nodes to keep, in order.
[[nodiscard]] std::vector<NodeIndex> partition(const JointGraph& graph);

}  // namespace memcalc::compile
