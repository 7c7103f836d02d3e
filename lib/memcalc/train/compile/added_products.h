// Products that add a gradient: fx_passes/post_grad.py, addmm. Covered by tests/unit/compile_test.cc.
// MIRRORS(torch, "_inductor/fx_passes/post_grad.py", "2.11.0")
#pragma once

#include <optional>

#include "memcalc/train/compile/graph.h"

namespace memcalc::compile {

/// The graph in which inductor looks for backward's kernels, where it differs from the one that was partitioned. The
/// sum of a matrix product and another gradient of the same parameter (a head that is tied to the embedding) is one
/// product, which reads the other gradient. It stands where the sum stood: what the product reads lives until then.
[[nodiscard]] std::optional<JointGraph> with_added_products(const JointGraph& graph);

/// Whether the node is such a sum.
[[nodiscard]] bool is_added_product(const GraphNode& node);

}  // namespace memcalc::compile
