#include "memcalc/symbolic/capture.h"

#include <algorithm>

#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// Of the list of CheckpointFrame's policy.
bool is_product(const AtenOperator& op) { return &op == &aten::kMm || op.compile == CompileRule::kFloat8Product; }
bool is_fused_attention(const AtenOperator& op) {
  return &op == &aten::kScaledDotProductFlashAttention || &op == &aten::kScaledDotProductEfficientAttention ||
         &op == &aten::kScaledDotProductCudnnAttention;
}

}  // namespace

void GraphCapture::enter_checkpoint(Recomputes recomputes) {
  recomputes_ = recomputes;
  ++checkpoints_;
  products_ = 0;
}

std::int32_t GraphCapture::value_of(const Tensor& tensor) {
  TensorImpl& impl = *tensor.impl();
  if (impl.graph_value < 0) {
    impl.graph_value = static_cast<std::int32_t>(values.size());
    values.push_back({impl.shape, impl.dtype, impl.is_parameter ? &impl : nullptr, -1});
  }
  return impl.graph_value;
}

void GraphCapture::record(const Operator& name, const AtenOperator* op, const Tensor* const* inputs, int count,
                          bool differentiable) {
  CapturedOperator& made = operators.emplace_back();
  made.name = &name;
  if (op != nullptr) made.rule = op->compile;
  made.differentiable = differentiable;
  if (recomputes_) {
    const bool kept = *recomputes_ == Recomputes::kSelected && op != nullptr &&
                      (is_product(*op) ? ++products_ % 2 != 0 : is_fused_attention(*op));
    made.recompute = kept ? Recompute::kMustSave : Recompute::kPreferred;
    made.checkpoint = checkpoints_;
    made.selective = *recomputes_ == Recomputes::kSelected;
  }
  if (count > 0 && inputs[0]->tape().modes.autocast.dtype) autocast = inputs[0]->tape().modes.autocast.dtype;
  if (count > 0) made.first_kernel = inputs[0]->tape().kernels.size();
  for (int i = 0; i < count; ++i) {
    const std::int32_t value = value_of(*inputs[i]);  // may grow `values`, not `operators`
    made.inputs.push_back(value);
    made.needs_gradient.push_back(inputs[i]->requires_grad());
  }
  if (!differentiable) without_node_.push_back(static_cast<std::int32_t>(operators.size() - 1));
}

void GraphCapture::opened(const Node& node) {
  const auto id = static_cast<std::size_t>(node.id);
  if (operator_of_node_.size() <= id) operator_of_node_.resize(id + 1, -1);
  operator_of_node_[id] = static_cast<std::int32_t>(operators.size() - 1);
}

void GraphCapture::save(const Node& node, const Tensor& tensor) {
  const std::int32_t maker = operator_of_node_.at(static_cast<std::size_t>(node.id));
  operators[static_cast<std::size_t>(maker)].saved.push_back(value_of(tensor));
}

void GraphCapture::evaluating(const Node& node) {
  const auto id = static_cast<std::size_t>(node.id);
  evaluated_ = id < operator_of_node_.size() ? operator_of_node_[id] : -1;
}

void GraphCapture::scratch(Bytes bytes) {
  if (evaluated_ < 0) return;
  Bytes& most = operators[static_cast<std::size_t>(evaluated_)].backward_scratch;
  most = std::max(most, bytes);
}

void GraphCapture::set_output(const Node* node, const Tensor& output) {
  std::int32_t maker = -1;
  if (node != nullptr) {
    maker = operator_of_node_.at(static_cast<std::size_t>(node->id));
  } else if (!without_node_.empty()) {
    maker = without_node_.back();
    without_node_.pop_back();
  }
  if (maker < 0) return;
  // A new number, also where an in-place operator returns what it was given.
  TensorImpl& impl = *output.impl();
  impl.graph_value = static_cast<std::int32_t>(values.size());
  values.push_back({impl.shape, impl.dtype, nullptr, maker});
  operators[static_cast<std::size_t>(maker)].outputs.push_back(impl.graph_value);
}

}  // namespace memcalc
