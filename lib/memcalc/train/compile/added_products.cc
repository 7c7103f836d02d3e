#include "memcalc/train/compile/added_products.h"

#include <algorithm>

#include "memcalc/symbolic/aten.h"

namespace memcalc::compile {

namespace {

/// Which input of a sum is such a product, of which a transposition may stand before the sum: the gradient of a weight
/// is transposed twice, and the two cancel (is_valid_addmm_fusion: nothing else reads the product, and both have a
/// type). A sum that the graph returns has a user that is not pointwise (should_prefer_unfused_addmm).
NodeIndex product_of(const JointGraph& graph, const GraphNode& sum) {
  if (sum.op != &aten::kAdd || sum.kind != NodeKind::kPointwise || sum.inputs.size() != 2) return kNone;
  if (!sum.users.empty()) return kNone;
  for (const NodeIndex each : sum.inputs) {
    const NodeIndex other = sum.inputs[each == sum.inputs.front() ? 1 : 0], product = graph.storage_of(each);
    const auto is_read_once = [&](NodeIndex node) { return graph[node].users.size() == 1; };
    const bool alike =
        graph[product].bytes == sum.bytes && graph[each].dtype == sum.dtype && graph[other].dtype == sum.dtype;
    if (graph[product].calls_cublas && is_read_once(product) && is_read_once(each) && other != each && alike)
      return each;
  }
  return kNone;
}

}  // namespace

bool is_added_product(const GraphNode& node) { return node.op == &aten::kAdd && node.kind == NodeKind::kExtern; }

std::optional<JointGraph> with_added_products(const JointGraph& graph) {
  std::optional<JointGraph> rewritten;
  for (const auto& [parameter, sum] : graph.gradients) {
    const NodeIndex input = product_of(graph, graph[sum]);
    if (input == kNone) continue;
    if (!rewritten) rewritten = graph;
    const NodeIndex product = graph.storage_of(input);
    GraphNode& node = (*rewritten)[sum];
    GraphNode& inner = (*rewritten)[product];
    node.kind = NodeKind::kExtern;
    node.calls_cublas = true;
    node.inputs.erase(std::find(node.inputs.begin(), node.inputs.end(), input));
    for (const NodeIndex each : inner.inputs) {
      std::vector<NodeIndex>& users = (*rewritten)[each].users;
      std::replace(users.begin(), users.end(), product, sum);
      node.inputs.push_back(each);
    }
    inner.users.clear();
  }
  return rewritten;
}

}  // namespace memcalc::compile
