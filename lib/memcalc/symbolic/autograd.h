// Autograd: the graph of a symbolic run and its backward pass, as torch/csrc/autograd/engine.cpp runs it: a node's
// gradients wait in its input buffer until all have arrived; of the ready nodes the one recorded last runs first.
// Covered by tests/unit/tape_test.cc.
// MIRRORS(torch, "torch/csrc/autograd/engine.cpp", "2.11.0")
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/node.h"
#include "memcalc/symbolic/pool.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

class Autograd {
 public:
  /// Pre: `tape` outlives it.
  explicit Autograd(Tape& tape) : tape_(tape) {}
  Autograd(const Autograd&) = delete;
  Autograd& operator=(const Autograd&) = delete;
  /// Lets go of what the graph and the hooks hold, as long as the tensors' tape is there.
  void clear();

  // --- leaves
  /// A parameter that needs a gradient gets the node that accumulates it, for the whole run.
  void add_accumulator(const Tensor& parameter);
  /// parameter.requires_grad_(trainable), of one that was made trainable.
  void set_trainable(const Tensor& parameter, bool trainable) { parameter.impl()->requires_grad = trainable; }
  /// tensor.requires_grad_() of a result without history: a leaf, whose gradient lives as long as the graph.
  void require_gradient(const Tensor& tensor);
  /// What a gradient that arrives for a leaf is summed and cast to; null where it gets none.
  [[nodiscard]] OutputMetadata* expected_gradient(const TensorImpl& leaf);
  /// Its gradient may have another shape than the parameter has on this rank (a DTensor of another layout).
  void accept_whole_gradient(const Tensor& parameter);

  // --- what an operator records
  /// Makes a node over the inputs that need a gradient; null where none does or gradients are off.
  [[nodiscard]] Node* record(const AtenOperator& op, BackwardFunction backward, const Tensor* const* inputs,
                             int count) {
    return record(op.node, backward, inputs, count, &op);
  }
  /// Of a function that is no operator of ATen, as torch.autograd.Function makes it.
  [[nodiscard]] Node* record(const Operator& name, BackwardFunction backward, const Tensor* const* inputs, int count) {
    return record(name, backward, inputs, count, nullptr);
  }
  void save(Node& node, const Tensor& tensor);
  /// ctx.name = tensor in an autograd.Function: neither checkpointing nor backward lets it go, only the graph's end.
  void keep(Node& node, const Tensor& tensor);
  /// Makes `output` the next output of `node`; without a node nothing. A former history is let go.
  void set_history(Node* node, Tensor& output);
  /// The node that made it, or that takes the gradient of a leaf; null where it needs none.
  [[nodiscard]] const Node* maker_of(const Tensor& tensor) const { return maker_of(gradient_edge(tensor)); }
  /// What an edge leads to; null where it ends.
  [[nodiscard]] const Node* maker_of(const Edge& edge) const;
  /// Makes `output` what `edge` leads to: the same result of the same node.
  void set_edge(Tensor& output, const Edge& edge);
  /// tensor.detach_()
  void forget_history(const Tensor& tensor);
  /// Forgets a node whose operator was stopped before it made its output.
  void abandon_pending_node();
  /// One owner less of a node; the last one lets it go with all that it saved.
  void release(NodeId id);

  // --- the backward pass
  void backward(const Tensor& root, Tensor root_gradient);
  /// stage_backward_input of torch.distributed.pipelining: the gradient of `input` alone; the graph is kept. What the
  /// gradients of `weights` need waits in the result, in the order of the weights.
  [[nodiscard]] std::vector<DeferredNode> backward_input(const Tensor& root, Tensor root_gradient, const Tensor& input,
                                                         const std::vector<Tensor>& weights);
  /// stage_backward_weight: node by node, whose graph may die once its turn is over.
  void backward_weights(std::vector<DeferredNode>& deferred);
  /// Which call of backward() is under way: the engine's graph task.
  [[nodiscard]] std::int64_t call() const { return call_; }

  // --- hooks
  /// tensor.register_hook: before the backward of the operator that made it; of a leaf with its gradient.
  void before_backward_of(const Tensor& output, std::function<void()> hook);
  /// A post hook of the parameter's AccumulateGrad: each time that its gradient has arrived.
  void after_gradient_of(const Tensor& parameter, std::function<void()> hook);
  /// Variable._execution_engine.queue_callback: once, when this backward pass is done.
  void at_end_of_backward(std::function<void()> callback) { final_callbacks_.push_back(std::move(callback)); }

 private:
  [[nodiscard]] Node* record(const Operator& name, BackwardFunction backward, const Tensor* const* inputs, int count,
                             const AtenOperator* op);
  [[nodiscard]] Node& node_of(NodeId id) { return nodes_[static_cast<std::size_t>(id)]; }
  [[nodiscard]] NodeId new_node();
  [[nodiscard]] static Edge gradient_edge(const Tensor& tensor);
  [[nodiscard]] Tensor unpack(SavedTensor& saved);
  [[nodiscard]] std::int32_t add_hook(std::function<void()> hook);
  void count_dependencies(NodeId root);
  void run_ready(NodeId first);
  void evaluate(NodeId id);
  void collect_accumulators(NodeId from, std::vector<NodeId>& found);
  void backward_weight(DeferredNode& deferred);
  void validate(const Edge& edge, Tensor& gradient);
  void deliver(const Edge& edge, Tensor gradient);
  void accumulate_gradient(Node& node, Tensor gradient);
  void push_ready(NodeId id);

  Tape& tape_;
  Pool<Node> nodes_;
  std::vector<NodeId> free_nodes_;
  std::vector<NodeId> release_stack_;
  bool releasing_ = false;
  std::vector<std::pair<std::uint64_t, NodeId>> ready_;  // a heap: largest sequence first
  std::vector<NodeId> visit_stack_;
  std::vector<NodeId> visited_;
  NodeId pending_node_ = kNoNode;  // recorded, its output not made yet
  std::uint64_t next_sequence_ = 0;
  std::vector<std::function<void()>> hooks_;
  std::vector<std::function<void()>> final_callbacks_;
  int depth_ = 0;  // calls of backward() inside of backward()
  std::int64_t calls_ = 0;
  std::int64_t call_ = 0;
  std::vector<DeferredNode>* deferred_ = nullptr;  // of the backward_input() under way, which keeps the graph
};

/// What a backward function sees: the incoming gradients, the saved tensors, and which inputs need a gradient.
class BackwardCall {
 public:
  BackwardCall(Tape& owner, Node& evaluated) : tape(owner), node(evaluated) {}

  [[nodiscard]] bool needs(int input) const {
    return node.edges[static_cast<std::size_t>(input)].node != kNoNode && (node.computes >> input & 1) != 0;
  }
  [[nodiscard]] const Tensor& gradient(int output = 0) const {
    const auto i = static_cast<std::size_t>(output);
    return i < gradients.size() ? gradients[i] : further_gradients[i - gradients.size()];
  }
  /// The gradient itself, where the result is a view of it.
  [[nodiscard]] Tensor take_gradient() { return std::move(gradients[0]); }
  /// What the operator stored. Throws Error(kInternal) where that is of another type.
  template <typename T>
  [[nodiscard]] const T& payload() const {
    return std::as_const(node.payload).get<T>();
  }
  [[nodiscard]] const Tensor& saved(int i) const { return unpacked[static_cast<std::size_t>(i)]; }
  /// A gradient that nobody needs dies here.
  void set(int input, Tensor gradient) {
    if (needs(input)) results[static_cast<std::size_t>(input)] = std::move(gradient);
  }

  Tape& tape;
  Node& node;
  std::array<Tensor, kUsualOutputs> gradients;
  std::vector<Tensor> further_gradients;   // of outputs beyond these
  std::array<Tensor, kMaxSaved> unpacked;  // the backward function's locals: they die when it returns
  std::array<Tensor, kMaxEdges> results;
};

}  // namespace memcalc
