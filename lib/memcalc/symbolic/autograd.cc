// The recording of nodes and the backward pass: torch/csrc/autograd/{engine,input_buffer}.cpp and
// functions/accumulate_grad.h, as far as they decide when memory is taken and returned.
// MIRRORS(torch, "accumulate_grad.cpp", "2.11.0")
// MIRRORS(torch, "engine.cpp", "2.11.0")
// MIRRORS(torch, "input_buffer.cpp", "2.11.0")
// MIRRORS(torch, "saved_variable.cpp", "2.11.0")
#include <algorithm>
#include <optional>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/capture.h"
#include "memcalc/symbolic/checkpoint.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/split_part.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {
constexpr Operator kAccumulateGrad{"torch::autograd::AccumulateGrad"};

bool was_released(const Node& node) {
  return node.edge_count == 0 && node.saved_count == 0 && node.output_count == 0 && node.variable == nullptr;
}

/// Stands in the place of a node's function once what it saved is released. A checkpoint within backward() comes to
/// such a node from keys and values that another layer has left for its own.
void backward_again(BackwardCall& /*call*/) {
  throw Error(ErrorCode::kUnsupported,
              "reentrant checkpoints of layers that share keys and values with a layer outside of a checkpoint: "
              "backward goes through its graph once for each, and PyTorch stops at the second; accepted: "
              "--no-reentrant, --checkpointing full",
              "--reentrant");
}
}  // namespace

void Autograd::clear() {
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    Node& node = nodes_[i];
    if (was_released(node)) continue;  // most were, and hold nothing
    for (SavedTensor& saved : node.saved) saved.reset();
    for (Tensor& gradient : node.buffer) gradient.reset();
    node.further_buffer.clear();
    node.edges = {};
    node.payload.reset();
    node.kept.reset();
    node.edge_count = node.saved_count = node.output_count = 0;
    node.variable = nullptr;
  }
  hooks_.clear();
  final_callbacks_.clear();
}

void Autograd::add_accumulator(const Tensor& parameter) {
  TensorImpl& impl = *parameter.impl();
  impl.grad_accumulator = new_node();
  Node& node = node_of(impl.grad_accumulator);
  node.references = 1;  // owned by the parameter
  node.variable = &impl;
  node.sequence = UINT64_MAX;  // engine.cpp: AccumulateGrad runs as soon as it is ready
  node.output_count = 1;
  node.outputs_differ = false;
  node.output = {impl.shape, impl.dtype};
}

void Autograd::require_gradient(const Tensor& tensor) {
  TensorImpl& impl = *tensor.impl();
  impl.requires_grad = true;
  impl.grad_accumulator = new_node();
  Node& node = node_of(impl.grad_accumulator);
  node.references = 0;
  node.variable = &impl;
  node.saved_count = 1;
  node.saved[0].tensor = tensor;  // accumulate_grad.h: the node owns its variable, the variable only points back
  node.sequence = UINT64_MAX;
  node.output_count = 1;
  node.output = {impl.shape, impl.dtype};
}

OutputMetadata* Autograd::expected_gradient(const TensorImpl& leaf) {
  return leaf.grad_accumulator == kNoNode ? nullptr : &node_of(leaf.grad_accumulator).output;
}

void Autograd::accept_whole_gradient(const Tensor& parameter) {
  node_of(parameter.impl()->grad_accumulator).outputs_differ = true;
}

void Autograd::keep(Node& node, const Tensor& tensor) {
  node.kept = tensor;
  tape_.memory.mark_saved(tensor.block());
}

NodeId Autograd::new_node() {
  NodeId id = kNoNode;
  if (free_nodes_.empty()) {
    nodes_.grow();
    id = static_cast<NodeId>(nodes_.size() - 1);
  } else {
    id = free_nodes_.back();
    free_nodes_.pop_back();
  }
  // release() and the destructor have emptied it; what else is left of the last node in its place:
  Node& node = node_of(id);
  node.name = nullptr;
  node.op = nullptr;
  node.backward = nullptr;
  node.hook = -1;
  node.visited = node.recomputed = node.outputs_differ = node.defers = node.sums_anew = false;
  node.computes = 0xff;
  return id;
}

void Autograd::release(NodeId id) {
  if (tape_.memory.is_stopped()) return;
  if (--node_of(id).references > 0) return;
  release_stack_.push_back(id);
  if (releasing_) return;  // the loop below is at work further up the call stack
  releasing_ = true;
  while (!release_stack_.empty()) {
    const NodeId dead = release_stack_.back();
    release_stack_.pop_back();
    Node& node = node_of(dead);
    for (int i = 0; i < node.saved_count; ++i) node.saved[static_cast<std::size_t>(i)].reset();
    for (Tensor& gradient : node.buffer) gradient.reset();
    node.further_buffer.clear();
    for (int i = 0; i < node.edge_count; ++i) {
      const NodeId next = node.edges[static_cast<std::size_t>(i)].node;
      node.edges[static_cast<std::size_t>(i)] = Edge{};
      if (next != kNoNode && --node_of(next).references == 0) release_stack_.push_back(next);
    }
    node.edge_count = node.saved_count = node.output_count = 0;
    node.variable = nullptr;
    node.payload.reset();
    node.kept.reset();
    free_nodes_.push_back(dead);
  }
  releasing_ = false;
}

Edge Autograd::gradient_edge(const Tensor& tensor) {
  const TensorImpl& impl = *tensor.impl();
  if (impl.grad_fn != kNoNode) return {impl.grad_fn, impl.output_index};
  if (impl.requires_grad) return {impl.grad_accumulator, 0};
  return {};
}

Node* Autograd::record(const Operator& name, BackwardFunction backward, const Tensor* const* inputs, int count,
                       const AtenOperator* op) {
  if (!tape_.modes.grad_enabled) return nullptr;
  bool any = false;
  for (int i = 0; i < count; ++i) any = any || inputs[i]->requires_grad();
  if (tape_.modes.capture != nullptr) tape_.modes.capture->record(name, op, inputs, count, any);
  if (!any) return nullptr;
  const NodeId id = new_node();
  Node& node = node_of(id);
  node.name = &name;
  node.op = op;
  node.backward = backward;
  node.sequence = next_sequence_++;
  node.references = 0;
  node.edge_count = static_cast<std::uint8_t>(count);
  node.recomputed = tape_.moment.recomputing;
  node.sums_anew = tape_.modes.on_dtensors;
  for (int i = 0; i < count; ++i) {
    const Edge edge = gradient_edge(*inputs[i]);
    node.edges[static_cast<std::size_t>(i)] = edge;
    if (edge.node != kNoNode) ++node_of(edge.node).references;
  }
  node.id = id;
  if (tape_.modes.capture != nullptr) tape_.modes.capture->opened(node);
  pending_node_ = id;
  return &node;
}

void Autograd::save(Node& node, const Tensor& tensor) {
  if (tape_.modes.capture != nullptr) tape_.modes.capture->save(node, tensor);
  SavedTensor& saved = node.saved[node.saved_count++];
  if (tape_.modes.checkpoint) return tape_.modes.checkpoint->pack(tensor, saved);
  if (tape_.modes.offload_saved) {
    saved.tensor = tape_.to_host(tensor);
    saved.on_host = true;
    return;
  }
  // An output of the node itself is kept without its history, which would be a cycle (saved_variable.cpp).
  saved.tensor = tensor.impl()->grad_fn == node.id ? tape_.detach(tensor) : tensor;
  tape_.memory.mark_saved(tensor.block());
}

Tensor Autograd::unpack(SavedTensor& saved) {
  if (saved.frame) return saved.frame->unpack(saved);
  return saved.on_host ? tape_.from_host(saved.tensor) : saved.tensor;
}

void Autograd::set_history(Node* node, Tensor& output) {
  if (tape_.modes.capture != nullptr && tape_.modes.grad_enabled) tape_.modes.capture->set_output(node, output);
  if (node == nullptr) return;
  TensorImpl& impl = *output.impl();
  impl.requires_grad = true;
  const NodeId former = std::exchange(impl.grad_fn, node->id);
  pending_node_ = kNoNode;
  impl.output_index = node->output_count;
  ++node->references;
  if (node->output_count == 0) {
    node->output = {impl.shape, impl.dtype};
  } else {
    node->outputs_differ = node->outputs_differ || !(impl.shape == node->output.shape);
  }
  if (++node->output_count > kUsualOutputs) node->further_buffer.emplace_back();
  if (former != kNoNode) release(former);
}

const Node* Autograd::maker_of(const Edge& edge) const {
  return edge.node == kNoNode ? nullptr : &nodes_[static_cast<std::size_t>(edge.node)];
}

void Autograd::set_edge(Tensor& output, const Edge& edge) {
  if (edge.node == kNoNode) return;
  TensorImpl& impl = *output.impl();
  impl.requires_grad = true;
  const NodeId former = std::exchange(impl.grad_fn, edge.node);
  impl.output_index = edge.input;
  ++node_of(edge.node).references;
  if (former != kNoNode) release(former);
}

void Autograd::abandon_pending_node() {
  if (pending_node_ == kNoNode) return;
  node_of(pending_node_).references = 1;
  release(std::exchange(pending_node_, kNoNode));
}

std::int32_t Autograd::add_hook(std::function<void()> hook) {
  hooks_.push_back(std::move(hook));
  return static_cast<std::int32_t>(hooks_.size() - 1);
}

void Autograd::before_backward_of(const Tensor& output, std::function<void()> hook) {
  NodeId id = output.impl()->grad_fn;
  // Tensor.register_hook of a leaf runs as its gradient arrives: the embedding's output under peft's
  // enable_input_require_grads.
  if (id == kNoNode && output.requires_grad()) id = output.impl()->grad_accumulator;
  if (id == kNoNode) throw Error(ErrorCode::kInternal, "a hook on a tensor without history");
  Node& node = node_of(id);
  if (node.hook >= 0) {  // hooks run in the order in which they were registered
    hook = [before = hooks_[static_cast<std::size_t>(node.hook)], after = std::move(hook)] {
      before();
      after();
    };
  }
  node.hook = add_hook(std::move(hook));
}

void Autograd::after_gradient_of(const Tensor& parameter, std::function<void()> hook) {
  node_of(parameter.impl()->grad_accumulator).hook = add_hook(std::move(hook));
}

void Autograd::push_ready(NodeId id) {
  ready_.emplace_back(node_of(id).sequence, id);
  std::push_heap(ready_.begin(), ready_.end());
}

void Autograd::count_dependencies(NodeId root) {
  visited_.clear();
  visit_stack_.assign(1, root);
  node_of(root).visited = true;
  visited_.push_back(root);
  while (!visit_stack_.empty()) {
    const Node& node = node_of(visit_stack_.back());
    visit_stack_.pop_back();
    for (int i = 0; i < node.edge_count; ++i) {
      const NodeId next = node.edges[static_cast<std::size_t>(i)].node;
      if (next == kNoNode) continue;
      Node& target = node_of(next);
      if (!target.visited) {
        target.visited = true;
        target.dependencies = 0;
        visited_.push_back(next);
        visit_stack_.push_back(next);
      }
      ++target.dependencies;
    }
  }
  for (const NodeId id : visited_) node_of(id).visited = false;
}

void Autograd::backward(const Tensor& root, Tensor root_gradient) {
  const NodeId first = root.impl()->grad_fn;
  if (first == kNoNode) throw Error(ErrorCode::kInternal, "backward from a tensor without history");
  const NoGrad no_grad(tape_.modes);
  count_dependencies(first);
  node_of(first).arrived(root.impl()->output_index) = root_gradient;
  // Called inside of backward(), by a reentrant checkpoint, it has a queue of its own.
  ++depth_;
  const auto outer_ready = std::exchange(ready_, {});
  const Operator* const outer_node = tape_.moment.node;
  const std::int64_t outer_call = std::exchange(call_, ++calls_);
  run_ready(first);
  call_ = outer_call;
  ready_ = outer_ready;
  tape_.moment.node = outer_node;
  if (--depth_ > 0) return;
  for (const std::function<void()>& callback : std::exchange(final_callbacks_, {})) callback();
}

void Autograd::run_ready(NodeId first) {
  push_ready(first);
  while (!ready_.empty()) {
    std::pop_heap(ready_.begin(), ready_.end());
    const NodeId id = ready_.back().second;
    ready_.pop_back();
    tape_.moment.node = node_of(id).name;
    tape_.kernels.pass_node();
    evaluate(id);
  }
}

void Autograd::evaluate(NodeId id) {
  Node& node = node_of(id);
  if (node.variable != nullptr) {
    tape_.moment.node = &kAccumulateGrad;
    accumulate_gradient(node, std::move(node.buffer[0]));
    if (node.hook >= 0) hooks_[static_cast<std::size_t>(node.hook)]();
    return;
  }
  if (node.hook >= 0) hooks_[static_cast<std::size_t>(node.hook)]();
  if (tape_.modes.capture != nullptr) tape_.modes.capture->evaluating(node);
  BackwardCall call(tape_, node);
  if (node.defers && deferred_ != nullptr) {  // its prehook
    for (DeferredNode& each : *deferred_) {
      if (each.node == id) each.gradient = node.buffer[0];
    }
  }
  const auto outputs = std::min<std::size_t>(node.output_count, kUsualOutputs);
  for (std::size_t i = 0; i < outputs; ++i) call.gradients[i] = std::move(node.buffer[i]);
  if (!node.further_buffer.empty()) {
    call.further_gradients = std::exchange(node.further_buffer, std::vector<Tensor>(node.further_buffer.size()));
  }
  for (int i = 0; i < node.saved_count; ++i) {
    call.unpacked[static_cast<std::size_t>(i)] = unpack(node.saved[static_cast<std::size_t>(i)]);
  }
  // Nothing arrives where a function returned several results, of which this one is not used (any_variable_defined).
  const auto is_defined = [](const Tensor& gradient) { return gradient.defined(); };
  const bool any_defined = std::any_of(call.gradients.begin(), call.gradients.end(), is_defined) ||
                           std::any_of(call.further_gradients.begin(), call.further_gradients.end(), is_defined);
  if (any_defined) node.backward(call);
  for (int i = node.saved_count - 1; i >= 0; --i) call.unpacked[static_cast<std::size_t>(i)].reset();
  for (int i = 0; i < node.edge_count; ++i) {
    validate(node.edges[static_cast<std::size_t>(i)], call.results[static_cast<std::size_t>(i)]);
  }
  // Order matters: first the incoming gradients die, then what was saved, then results move on.
  for (Tensor& gradient : call.gradients) gradient.reset();
  for (Tensor& gradient : call.further_gradients) gradient.reset();
  if (deferred_ == nullptr) {
    for (int i = 0; i < node.saved_count; ++i) node.saved[static_cast<std::size_t>(i)].reset();
    if (node.saved_count > 0) node.backward = backward_again;
    node.saved_count = 0;
  }
  for (int i = 0; i < node.edge_count; ++i) {
    const Edge edge = node.edges[static_cast<std::size_t>(i)];
    if (call.needs(i)) deliver(edge, std::move(call.results[static_cast<std::size_t>(i)]));
  }
}

void Autograd::validate(const Edge& edge, Tensor& gradient) {
  if (edge.node == kNoNode || !gradient.defined()) return;
  const Node& node = node_of(edge.node);
  const OutputMetadata& expected = node.output;
  // Outputs of different shapes: those of a split are known, others come as they are.
  const std::optional<Shape> shape =
      node.outputs_differ ? split_part_shape(node, edge.input) : std::optional(expected.shape);
  if (shape && !(gradient.shape() == *shape)) gradient = sum_to(std::move(gradient), *shape);
  if (gradient.dtype() != expected.dtype) gradient = to_dtype(std::move(gradient), expected.dtype);
}

void Autograd::deliver(const Edge& edge, Tensor gradient) {
  Node& target = node_of(edge.node);
  if (gradient.defined()) {
    Tensor& waiting = target.arrived(edge.input);
    if (!waiting.defined()) {
      waiting = std::move(gradient);
    } else {
      // input_buffer.cpp, accumulate: in place only where the buffer is the sole owner of tensor and storage.
      const TensorImpl& impl = *waiting.impl();
      const bool in_place = !target.sums_anew && impl.references == 1 && !impl.is_view &&
                            tape_.memory.has_one_owner(impl.block) && is_dense(impl.shape, impl.strides);
      if (in_place) {
        tape_.kernels.add(aten::kAdd, OperatorClass::kElementwise, impl.dtype, static_cast<double>(waiting.elements()),
                          3.0 * static_cast<double>(waiting.bytes()), elementwise_kind(waiting, {&gradient}),
                          static_cast<double>(waiting.elements()));
      } else {
        waiting = add(waiting, gradient);
      }
    }
  }
  gradient.reset();
  if (--target.dependencies == 0) push_ready(edge.node);
}

void Autograd::accumulate_gradient(Node& node, Tensor gradient) {
  if (!gradient.defined()) return;  // accumulate_grad.cpp: what a function did not compute changes nothing
  TensorImpl& variable = *node.variable;
  if (variable.grad.defined()) {  // a later micro-batch: grad += new
    tape_.kernels.add(aten::kAdd, OperatorClass::kElementwise, variable.dtype, static_cast<double>(gradient.elements()),
                      3.0 * static_cast<double>(gradient.bytes()), elementwise_kind(variable.grad, {&gradient}),
                      static_cast<double>(gradient.elements()));
    return;
  }
  const TensorImpl& impl = *gradient.impl();
  const bool obeys_layout =
      !is_dense(variable.shape, variable.strides) || impl.strides == variable.strides ||
      (is_contiguous(impl.shape, impl.strides) && is_contiguous(variable.shape, variable.strides));
  if (impl.references == 1 && obeys_layout) {
    variable.grad = tape_.detach(gradient);  // stolen
  } else {
    variable.grad = tape_.empty_strided(variable.shape, variable.strides, variable.dtype, aten::kClone);
    tape_.kernels.add(
        aten::kClone, OperatorClass::kMovement, variable.dtype, 0, 2.0 * static_cast<double>(gradient.bytes()),
        obeys_layout ? KernelKind::kVectorized : KernelKind::kStrided, static_cast<double>(gradient.elements()));
  }
  tape_.memory.set_category(variable.grad.block(), Category::kGradients);
  if (variable.drops_gradient) {  // register_post_accumulate_grad_hook
    gradient.reset();
    variable.grad.reset();
  }
}

}  // namespace memcalc
