// A backward pass in two halves, as zero-bubble schedules run it: torch/distributed/pipelining/_backward.py. The first
// computes the gradient of a stage's input and keeps the graph, and the gradients that arrive where weights come in;
// the second computes the weights' gradients from those. Covered by tests/measured/parallel_stream_test.cc.
// MIRRORS(torch, "distributed/pipelining/_backward.py", "2.11.0")
#include <algorithm>
#include <unordered_map>
#include <utility>

#include "memcalc/base/error.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {}  // namespace

/// The AccumulateGrad nodes that `from` leads to.
void Autograd::collect_accumulators(NodeId from, std::vector<NodeId>& found) {
  const Node& node = node_of(from);
  if (node.variable != nullptr) found.push_back(from);
  for (int i = 0; i < node.edge_count; ++i) {
    const NodeId next = node.edges[static_cast<std::size_t>(i)].node;
    if (next != kNoNode) collect_accumulators(next, found);
  }
}

std::vector<DeferredNode> Autograd::backward_input(const Tensor& root, Tensor root_gradient, const Tensor& input,
                                                   const std::vector<Tensor>& weights) {
  const NodeId first = root.impl()->grad_fn;
  const NodeId target = input.impl()->grad_accumulator;
  if (first == kNoNode || target == kNoNode) {
    throw Error(ErrorCode::kInternal, "backward_input from a tensor without history, or to one that needs no gradient");
  }
  const NoGrad no_grad(tape_.modes);
  count_dependencies(first);
  std::vector<NodeId> order = visited_;  // what is nearer to the leaves first; AccumulateGrad has the largest number
  const auto place = [this](NodeId id) { return node_of(id).sequence + 1; };
  std::sort(order.begin(), order.end(), [&](NodeId a, NodeId b) { return place(a) < place(b); });
  const auto leads = [this](const Edge& edge) { return edge.node != kNoNode && node_of(edge.node).visited; };
  for (const NodeId id : order) {
    Node& node = node_of(id);
    node.dependencies = 0;
    node.visited = id == target;
    for (int i = 0; i < node.edge_count; ++i) {
      node.visited = node.visited || leads(node.edges[static_cast<std::size_t>(i)]);
    }
  }
  std::unordered_map<NodeId, NodeId> entry_of;  // by AccumulateGrad: where its weight comes in
  std::vector<NodeId> accumulators;
  for (const NodeId id : order) {
    Node& node = node_of(id);
    if (!node.visited) continue;
    node.computes = 0;
    for (int i = 0; i < node.edge_count; ++i) {
      const Edge edge = node.edges[static_cast<std::size_t>(i)];
      if (leads(edge)) {
        node.computes = static_cast<std::uint8_t>(node.computes | 1U << i);
        ++node_of(edge.node).dependencies;
      } else if (edge.node != kNoNode) {
        accumulators.clear();
        collect_accumulators(edge.node, accumulators);
        for (const NodeId each : accumulators) entry_of.emplace(each, id);
      }
    }
  }
  for (const NodeId id : order) node_of(id).visited = false;
  std::vector<DeferredNode> deferred;
  for (const Tensor& weight : weights) {
    const auto found = entry_of.find(weight.impl()->grad_accumulator);
    if (found == entry_of.end()) continue;
    Node& node = node_of(found->second);
    if (std::exchange(node.defers, true)) continue;  // a bias comes in where its weight does
    ++node.references;
    deferred.emplace_back().node = found->second;
  }
  node_of(first).arrived(root.impl()->output_index) = std::move(root_gradient);
  deferred_ = &deferred;
  ++depth_;
  call_ = ++calls_;
  run_ready(first);
  --depth_;
  deferred_ = nullptr;
  tape_.moment.node = nullptr;
  for (const std::function<void()>& callback : std::exchange(final_callbacks_, {})) callback();
  for (const DeferredNode& each : deferred) {
    Node& node = node_of(each.node);
    node.computes = static_cast<std::uint8_t>(~node.computes);
  }
  return deferred;
}

void Autograd::backward_weight(DeferredNode& deferred) {
  const NoGrad no_grad(tape_.modes);
  Node& node = node_of(deferred.node);
  std::vector<NodeId> waiting;
  const auto wait_for = [&](const Edge& edge) {
    if (edge.node != kNoNode) waiting.push_back(edge.node);
  };
  for (int i = 0; i < node.edge_count; ++i) {
    if ((node.computes >> i & 1) != 0) wait_for(node.edges[static_cast<std::size_t>(i)]);
  }
  for (std::size_t i = 0; i < waiting.size(); ++i) {  // a chain of casts and views to each weight
    const Node& next = node_of(waiting[i]);
    for (int e = 0; e < next.edge_count; ++e) wait_for(next.edges[static_cast<std::size_t>(e)]);
  }
  for (const NodeId each : waiting) node_of(each).dependencies = 0;
  for (const NodeId each : waiting) ++node_of(each).dependencies;
  ++depth_;
  call_ = ++calls_;
  node.hook = -1;  // of a tensor that a later view stands for: its node is not run again
  node.buffer[0] = deferred.summed;
  tape_.moment.node = node.name;
  tape_.kernels.pass_node();
  evaluate(deferred.node);
  deferred.of_weights.clear();
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end());
    const NodeId id = ready_.back().second;
    ready_.pop_back();
    Node& next = node_of(id);
    if (next.variable == nullptr) {
      tape_.moment.node = next.name;
      evaluate(id);
      continue;
    }
    Tensor gradient = std::move(next.buffer[0]);
    Tensor& held = next.variable->grad;
    if (held.defined()) {  // weight.grad += dw
      tape_.kernels.add(aten::kAdd, OperatorClass::kElementwise, gradient.dtype(),
                        static_cast<double>(gradient.elements()), 3.0 * static_cast<double>(gradient.bytes()),
                        elementwise_kind(held, {&gradient}), static_cast<double>(gradient.elements()));
    } else {
      held = gradient;
      tape_.memory.set_category(held.block(), Category::kGradients);
    }
    deferred.of_weights.push_back(std::move(gradient));
  }
  --depth_;
  tape_.moment.node = nullptr;
}

// stage_backward_weight, whose variables live until the next turn gives them other values.
void Autograd::backward_weights(std::vector<DeferredNode>& deferred) {
  DeferredNode last;
  for (DeferredNode& group : deferred) {
    if (last.node != kNoNode) release(std::exchange(last.node, kNoNode));  // valid_edges = []
    last.gradient.reset();                                                 // grads_tuple, non_none_grads
    {
      const NoGrad no_grad(tape_.modes);
      group.summed = pointwise(aten::kAdd, {&group.gradient}, 1);  // sum() adds to 0
    }
    last.summed.reset();
    std::swap(group.of_weights, last.of_weights);
    backward_weight(group);
    last = std::move(group);
  }
  if (last.node != kNoNode) release(last.node);
  last.gradient.reset();
  last.summed.reset();
  last.of_weights.clear();
  deferred.clear();
}

void Autograd::forget_history(const Tensor& tensor) {
  TensorImpl& impl = *tensor.impl();
  impl.requires_grad = false;
  if (impl.grad_fn != kNoNode) release(std::exchange(impl.grad_fn, kNoNode));
}

}  // namespace memcalc
