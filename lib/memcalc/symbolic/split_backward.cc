// A backward pass in two halves, as zero-bubble schedules run it: torch/distributed/pipelining/_backward.py. The first
// computes the gradient of a stage's input and keeps the graph, and the gradients that arrive where weights come in;
// the second computes the weights' gradients from those. Covered by tests/measured/parallel_stream_test.cc.
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {
constexpr Operator kAdd{"aten::add"};
}  // namespace

/// The AccumulateGrad nodes that `from` leads to.
void Tape::collect_accumulators(NodeId from, std::vector<NodeId>& found) {
  const Node& node = nodes_[static_cast<std::size_t>(from)];
  if (node.variable != nullptr) found.push_back(from);
  for (int i = 0; i < node.edge_count; ++i) {
    const NodeId next = node.edges[static_cast<std::size_t>(i)].node;
    if (next != kNoNode) collect_accumulators(next, found);
  }
}

std::vector<DeferredNode> Tape::backward_input(const Tensor& root, Tensor root_gradient, const Tensor& input,
                                               const std::vector<Tensor>& weights) {
  const NodeId first = root.impl()->grad_fn;
  const NodeId target = input.impl()->grad_accumulator;
  if (first == kNoNode || target == kNoNode) {
    throw Error(ErrorCode::kInternal, "backward_input from a tensor without history, or to one that needs no gradient");
  }
  const NoGrad no_grad(*this);
  count_dependencies(first);
  std::vector<NodeId> order = visited_;  // what is nearer to the leaves first; AccumulateGrad has the largest number
  const auto place = [this](NodeId id) { return nodes_[static_cast<std::size_t>(id)].sequence + 1; };
  std::sort(order.begin(), order.end(), [&](NodeId a, NodeId b) { return place(a) < place(b); });
  const auto leads = [this](const Edge& edge) {
    return edge.node != kNoNode && nodes_[static_cast<std::size_t>(edge.node)].visited;
  };
  for (const NodeId id : order) {
    Node& node = nodes_[static_cast<std::size_t>(id)];
    node.dependencies = 0;
    node.visited = id == target;
    for (int i = 0; i < node.edge_count; ++i) {
      node.visited = node.visited || leads(node.edges[static_cast<std::size_t>(i)]);
    }
  }
  std::unordered_map<NodeId, NodeId> node_of;  // by AccumulateGrad: where its weight comes in
  std::vector<NodeId> accumulators;
  for (const NodeId id : order) {
    Node& node = nodes_[static_cast<std::size_t>(id)];
    if (!node.visited) continue;
    node.computes = 0;
    for (int i = 0; i < node.edge_count; ++i) {
      const Edge edge = node.edges[static_cast<std::size_t>(i)];
      if (leads(edge)) {
        node.computes = static_cast<std::uint8_t>(node.computes | 1U << i);
        ++nodes_[static_cast<std::size_t>(edge.node)].dependencies;
      } else if (edge.node != kNoNode) {
        accumulators.clear();
        collect_accumulators(edge.node, accumulators);
        for (const NodeId each : accumulators) node_of.emplace(each, id);
      }
    }
  }
  for (const NodeId id : order) nodes_[static_cast<std::size_t>(id)].visited = false;
  std::vector<DeferredNode> deferred;
  for (const Tensor& weight : weights) {
    const auto found = node_of.find(weight.impl()->grad_accumulator);
    if (found == node_of.end()) continue;
    Node& node = nodes_[static_cast<std::size_t>(found->second)];
    if (std::exchange(node.defers, true)) continue;  // a bias comes in where its weight does
    ++node.references;
    deferred.emplace_back().node = found->second;
  }
  nodes_[static_cast<std::size_t>(first)].buffer[root.impl()->output_index] = std::move(root_gradient);
  deferred_ = &deferred;
  ++backward_depth_;
  backward_call = ++backward_calls_;
  run_ready(first);
  --backward_depth_;
  deferred_ = nullptr;
  current_node = nullptr;
  for (const std::function<void()>& callback : std::exchange(final_callbacks_, {})) callback();
  for (const DeferredNode& each : deferred) {
    Node& node = nodes_[static_cast<std::size_t>(each.node)];
    node.computes = static_cast<std::uint8_t>(~node.computes);
  }
  return deferred;
}

void Tape::backward_weight(DeferredNode& deferred) {
  const NoGrad no_grad(*this);
  Node& node = nodes_[static_cast<std::size_t>(deferred.node)];
  std::vector<NodeId> waiting;
  const auto wait_for = [&](const Edge& edge) {
    if (edge.node != kNoNode) waiting.push_back(edge.node);
  };
  for (int i = 0; i < node.edge_count; ++i) {
    if ((node.computes >> i & 1) != 0) wait_for(node.edges[static_cast<std::size_t>(i)]);
  }
  for (std::size_t i = 0; i < waiting.size(); ++i) {  // a chain of casts and views to each weight
    const Node& next = nodes_[static_cast<std::size_t>(waiting[i])];
    for (int e = 0; e < next.edge_count; ++e) wait_for(next.edges[static_cast<std::size_t>(e)]);
  }
  for (const NodeId each : waiting) nodes_[static_cast<std::size_t>(each)].dependencies = 0;
  for (const NodeId each : waiting) ++nodes_[static_cast<std::size_t>(each)].dependencies;
  ++backward_depth_;
  backward_call = ++backward_calls_;
  node.hook = -1;  // of a tensor that a later view stands for: its node is not run again
  node.buffer[0] = deferred.summed;
  current_node = node.name;
  ++pending_nodes;
  evaluate(deferred.node);
  deferred.of_weights.clear();
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end());
    const NodeId id = ready_.back().second;
    ready_.pop_back();
    Node& next = nodes_[static_cast<std::size_t>(id)];
    if (next.variable == nullptr) {
      current_node = next.name;
      evaluate(id);
      continue;
    }
    Tensor gradient = std::move(next.buffer[0]);
    Tensor& held = next.variable->grad;
    if (held.defined()) {  // weight.grad += dw
      kernel(kAdd, OperatorClass::kElementwise, gradient.dtype(), static_cast<double>(gradient.elements()),
             3.0 * static_cast<double>(gradient.bytes()), elementwise_kind(held, {&gradient}),
             static_cast<double>(gradient.elements()));
    } else {
      held = gradient;
      set_category(held, Category::kGradients);
    }
    deferred.of_weights.push_back(std::move(gradient));
  }
  --backward_depth_;
  current_node = nullptr;
}

// stage_backward_weight, whose variables live until the next turn gives them other values.
void Tape::backward_weights(std::vector<DeferredNode>& deferred) {
  DeferredNode last;
  for (DeferredNode& group : deferred) {
    if (last.node != kNoNode) release_node(std::exchange(last.node, kNoNode));  // valid_edges = []
    last.gradient.reset();                                                      // grads_tuple, non_none_grads
    {
      const NoGrad no_grad(*this);
      group.summed = pointwise(kAdd, {&group.gradient}, 1);  // sum() adds to 0
    }
    last.summed.reset();
    std::swap(group.of_weights, last.of_weights);
    backward_weight(group);
    last = std::move(group);
  }
  if (last.node != kNoNode) release_node(last.node);
  last.gradient.reset();
  last.summed.reset();
  last.of_weights.clear();
  deferred.clear();
}

void Tape::forget_history(const Tensor& tensor) {
  TensorImpl& impl = *tensor.impl();
  impl.requires_grad = false;
  if (impl.grad_fn != kNoNode) release_node(std::exchange(impl.grad_fn, kNoNode));
}

}  // namespace memcalc
