#include "memcalc/train/compile/graph.h"

#include <algorithm>
#include <utility>

namespace memcalc::compile {

NodeIndex JointGraph::add(GraphNode node, bool distinct) {
  const auto index = static_cast<NodeIndex>(nodes_.size());
  if (!distinct) {
    const auto [known, is_new] = known_.emplace(Key{node.op, node.kind, node.bytes, node.dtype, node.inputs}, index);
    if (!is_new) return known->second;
  }
  for (const NodeIndex input : node.inputs) {
    GraphNode& from = nodes_[static_cast<std::size_t>(input)];
    node.after_tangents = node.after_tangents || from.after_tangents;
    if (std::find(from.users.begin(), from.users.end(), index) == from.users.end()) from.users.push_back(index);
  }
  nodes_.push_back(std::move(node));
  return index;
}

}  // namespace memcalc::compile
