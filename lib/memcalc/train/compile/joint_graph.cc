// MIRRORS(torch, "_functorch/partitioners.py", "2.11.0")
#include "memcalc/train/compile/joint_graph.h"

#include <algorithm>
#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/train/compile/rules.h"

namespace memcalc::compile {

namespace {
/// Of a gradient of shape `from` that is summed to shape `to`: whether the sum is over other dimensions than the
/// innermost one.
bool keeps_innermost(const Shape& to, const Shape& from) {
  for (int i = 1; i <= from.rank; ++i) {
    if (from[-i] > 1) return i <= to.rank && to[-i] > 1;
  }
  return false;
}

constexpr Operator kConstant{"prims::iota"};
constexpr Operator kConvert{"prims::convert_element_type"}, kTangent{"tangent"}, kItem{"getitem"};
}  // namespace

NodeIndex GraphBuilder::node_of(std::int32_t v) {
  NodeIndex& node = node_of_value_[static_cast<std::size_t>(v)];
  if (node != kNone) return node;
  // Of what has no operator: parameters; the batch's whole numbers; masks and positions, which are made from indices.
  const CapturedValue& tensor = value(v);
  const bool parameter = tensor.parameter != nullptr;
  const auto& given = capture.inputs;
  const bool input =
      !parameter && (tensor.dtype == DType::kInt64 || std::find(given.begin(), given.end(), v) != given.end());
  GraphNode made{.kind = parameter ? NodeKind::kParameter
                         : input   ? NodeKind::kInput
                                   : NodeKind::kPointwise,
                 .recomputable = !parameter && !input,
                 .dtype = tensor.dtype,
                 .bytes = bytes_of(v),
                 .op = &kConstant};
  return node = graph.add(std::move(made), true);
}

Bytes GraphBuilder::bytes_of(std::int32_t v) const {
  return checked_multiply(value(v).shape.elements(), size_of(value(v).dtype));
}

NodeIndex GraphBuilder::view(const Operator& op, NodeIndex of, Bytes bytes) {
  const DType dtype = graph[of].dtype;
  return graph.add(
      {.kind = NodeKind::kView, .recomputable = true, .dtype = dtype, .bytes = bytes, .op = &op, .inputs = {of}});
}

NodeIndex GraphBuilder::pointwise(const Operator& op, std::vector<NodeIndex> inputs, Bytes bytes, DType dtype) {
  return graph.add({.kind = NodeKind::kPointwise,
                    .recomputable = true,
                    .dtype = dtype,
                    .bytes = bytes,
                    .op = &op,
                    .inputs = std::move(inputs)});
}

NodeIndex GraphBuilder::reduction(const Operator& op, std::vector<NodeIndex> inputs, Bytes bytes, DType dtype) {
  return graph.add({.kind = NodeKind::kReduction,
                    .recomputable = true,
                    .dtype = dtype,
                    .bytes = bytes,
                    .op = &op,
                    .inputs = std::move(inputs)});
}

NodeIndex GraphBuilder::kernel(const Operator& op, std::vector<NodeIndex> inputs, Bytes bytes, DType dtype) {
  return graph.add({.kind = NodeKind::kExtern, .dtype = dtype, .bytes = bytes, .op = &op, .inputs = std::move(inputs)},
                   true);
}

NodeIndex GraphBuilder::item(NodeIndex tuple, Bytes bytes, DType dtype) {
  return graph.add(
      {.kind = NodeKind::kItem, .recomputable = true, .dtype = dtype, .bytes = bytes, .op = &kItem, .inputs = {tuple}},
      true);
}

void GraphBuilder::give(const CapturedOperator& op, std::size_t input, NodeIndex gradient) {
  const CapturedValue& to = value(op.inputs[input]);
  give(op, input, gradient, to.shape.elements(), to.dtype);
}

void GraphBuilder::give(const CapturedOperator& op, std::size_t input, NodeIndex gradient, std::int64_t elements,
                        DType dtype) {
  if (!op.needs_gradient[input]) return;
  const std::int32_t v = op.inputs[input];
  const CapturedValue& to = value(v);
  if (elements != to.shape.elements()) {
    gradient = reduction(aten::kSum, {gradient}, checked_multiply(to.shape.elements(), size_of(dtype)), dtype);
    graph[gradient].across_rows = keeps_innermost(to.shape, value(op.outputs.front()).shape);
  }
  if (dtype != to.dtype) gradient = pointwise(kConvert, {gradient}, bytes_of(v), to.dtype);
  NodeIndex& present = gradient_of_value_[static_cast<std::size_t>(v)];
  present = present == kNone ? gradient : pointwise(aten::kAdd, {present, gradient}, bytes_of(v), to.dtype);
}

std::vector<std::int32_t> GraphBuilder::further_results(const CapturedOperator& op) const {
  std::vector<std::int32_t> results;
  bool after_input = false;
  for (const std::int32_t v : op.saved) {
    const auto is = [&](const std::vector<std::int32_t>& list) {
      return std::find(list.begin(), list.end(), v) != list.end();
    };
    after_input = after_input || is(op.inputs);
    if (after_input && !is(op.inputs) && !is(op.outputs) && value(v).maker < 0 && value(v).parameter == nullptr &&
        node_of_value_[static_cast<std::size_t>(v)] == kNone) {
      results.push_back(v);
    }
  }
  return results;
}

std::vector<NodeIndex> GraphBuilder::operands(const CapturedOperator& op) {
  std::vector<NodeIndex> nodes;
  const auto add = [&](std::int32_t v) {
    const NodeIndex node = node_of(v);
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
  };
  const std::vector<std::int32_t> further = further_results(op);
  for (const std::int32_t v : op.inputs) add(v);
  for (const std::int32_t v : op.saved) {
    const bool result = std::find(further.begin(), further.end(), v) != further.end() ||
                        std::find(op.outputs.begin(), op.outputs.end(), v) != op.outputs.end();
    if (!result) add(v);
  }
  return nodes;
}

namespace {

/// partitioners.py, cleanup_recompute_tags: what one checkpointed region hands to a later one is kept.
void keep_between_checkpoints(JointGraph& graph) {
  for (NodeIndex i = 0; i < graph.size(); ++i) {
    GraphNode& node = graph[i];
    if (node.recompute != Recompute::kPreferred) continue;
    const bool goes_on = std::any_of(node.users.begin(), node.users.end(), [&](NodeIndex user) {
      return graph[user].recompute == Recompute::kPreferred && graph[user].checkpoint > node.checkpoint;
    });
    if (goes_on) node.recompute = Recompute::kMustSave;
  }
}

/// Positions, labels and masks that are computed element by element: nothing of them is stored, for they are made from
/// indices where they are read.
bool is_made_where_read(const GraphCapture& capture, const CapturedOperator& op) {
  const auto is_whole = [&](std::int32_t v) { return !is_floating(capture.values[static_cast<std::size_t>(v)].dtype); };
  return !op.differentiable && std::all_of(op.inputs.begin(), op.inputs.end(), is_whole) &&
         std::all_of(op.outputs.begin(), op.outputs.end(), is_whole) && !is_kernel(rule_of(op.rule));
}

}  // namespace

JointGraph build_joint_graph(const GraphCapture& capture, std::span<const std::int32_t> outputs) {
  GraphBuilder b(capture);
  for (const std::int32_t v : capture.inputs) b.graph.inputs.push_back(v < 0 ? kNone : b.node_of(v));
  for (const CapturedOperator& op : capture.operators) {
    const NodeIndex first = b.graph.size();
    if (!op.outputs.empty() && !is_made_where_read(capture, op)) rule_of(op.rule).forward(b, op);
    for (NodeIndex i = first; i < b.graph.size(); ++i) {
      GraphNode& node = b.graph[i];
      if (node.kind == NodeKind::kParameter || node.kind == NodeKind::kInput) continue;
      if (node.checkpoint != 0) continue;  // the rule has said it
      node.recompute = op.recompute;
      node.checkpoint = op.checkpoint;
    }
  }
  keep_between_checkpoints(b.graph);
  std::vector<bool> needs_gradient(capture.values.size(), false);
  for (const CapturedOperator& op : capture.operators) {
    for (const std::int32_t v : op.outputs) needs_gradient[static_cast<std::size_t>(v)] = op.differentiable;
  }
  // The gradients that Python hands to backward; zeros for what has none.
  for (const std::int32_t v : outputs) {
    NodeIndex made = b.node_of(v);
    const bool is_given = std::find(capture.inputs.begin(), capture.inputs.end(), v) != capture.inputs.end();
    if (b.graph[made].kind == NodeKind::kInput && !is_given) {  // whole numbers that are returned are stored
      made = b.pointwise(kConstant, {}, b.bytes_of(v), b.value(v).dtype);
    }
    b.graph.outputs.push_back(made);
    b.graph.tangent_of_output.push_back(kNone);
    if (!needs_gradient[static_cast<std::size_t>(v)]) continue;
    // What ends a graph gets its gradient from the next one.
    if (std::find(capture.breaks.begin(), capture.breaks.end(), v) != capture.breaks.end()) continue;
    const NodeIndex tangent = b.graph.add({.kind = NodeKind::kInput,
                                           .after_tangents = true,
                                           .dtype = b.value(v).dtype,
                                           .bytes = b.bytes_of(v),
                                           .op = &kTangent},
                                          true);
    b.graph.tangent_of_output.back() = tangent;
    b.graph.tangents.push_back(tangent);
    b.seed(v, tangent);
  }
  for (std::size_t i = capture.operators.size(); i-- > 0;) {
    const CapturedOperator& op = capture.operators[i];
    const bool reached =
        std::any_of(op.outputs.begin(), op.outputs.end(), [&](std::int32_t v) { return b.gradient_of(v) != kNone; });
    if (!op.differentiable || !reached) continue;
    for (const std::int32_t v : op.outputs) {
      if (b.gradient_of(v) == kNone) continue;
      if (std::find(capture.breaks.begin(), capture.breaks.end(), v) == capture.breaks.end()) continue;
      b.graph.handed_over.push_back(b.gradient_of(v));
    }
    rule_of(op.rule).backward(b, op);
  }
  for (std::size_t v = 0; v < capture.values.size(); ++v) {
    const NodeIndex gradient = b.gradient_of(static_cast<std::int32_t>(v));
    TensorImpl* parameter = capture.values[v].parameter;
    if (parameter != nullptr && gradient != kNone) b.graph.gradients.emplace_back(parameter, gradient);
  }
  for (const std::int32_t v : capture.inputs) b.graph.input_gradients.push_back(v < 0 ? kNone : b.gradient_of(v));
  return std::move(b.graph);
}

}  // namespace memcalc::compile
