// Views, parts of tensors, concatenation.
#include "memcalc/train/compile/rules_internal.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"

namespace memcalc::compile {

namespace {

void expand_backward(GraphBuilder& b, const Op& op) {
  b.give(op, 0, gradient(b, op), output(b, op).shape.elements(), output(b, op).dtype);
}

/// A part of its input: the gradient is written into zeros.
void part_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  b.give(op, 0,
         b.graph.add({.kind = NodeKind::kPointwise,
                      .dtype = b.value(in).dtype,
                      .bytes = b.bytes_of(in),
                      .op = &aten::kSliceScatter,
                      .inputs = {gradient(b, op)}}));
}

NodeIndex concatenated(GraphBuilder& b, std::vector<NodeIndex> parts, Bytes bytes, DType dtype) {
  return b.graph.add({.kind = NodeKind::kPointwise,
                      .concatenates = true,
                      .dtype = dtype,
                      .bytes = bytes,
                      .op = &aten::kCat,
                      .inputs = std::move(parts)});
}

/// A part's place in a row is divided up once more where it is a view, and Triton no longer sees that its elements lie
/// side by side unless a row is a multiple of a block (_inductor/runtime/triton_heuristics.py, pointwise()).
constexpr std::int64_t kBlock = 1024;

void split_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  std::vector<NodeIndex> parts;
  for (const std::int32_t out : op.outputs) {
    if (b.gradient_of(out) != kNone) parts.push_back(b.gradient_of(out));
  }
  const bool views = std::any_of(parts.begin() + (parts.empty() ? 0 : 1), parts.end(),
                                 [&](NodeIndex each) { return b.graph[each].kind == NodeKind::kView; });
  const std::int64_t width = b.value(in).shape[-1];
  const NodeIndex whole = concatenated(b, std::move(parts), b.bytes_of(in), b.value(in).dtype);
  b.graph[whole].joins_views = views && width % kBlock != 0 && b.value(op.outputs.front()).shape[-1] < width;
  b.give(op, 0, whole);
}

void cat_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  b.set_node(out, concatenated(b, b.operands(op), b.bytes_of(out), b.value(out).dtype));
}

void cat_backward(GraphBuilder& b, const Op& op) {
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.needs_gradient[i]) b.give(op, i, b.view(aten::kCat, gradient(b, op), b.bytes_of(op.inputs[i])));
  }
}

/// A copy into a part of the first input: what autograd follows as CopySlices is functionalised to a slice_scatter.
void slice_scatter_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  b.set_node(out, b.graph.add({.kind = NodeKind::kPointwise,
                               .dtype = b.value(out).dtype,
                               .bytes = b.bytes_of(out),
                               .op = &aten::kSliceScatter,
                               .inputs = b.operands(op)}));
}

void slice_scatter_backward(GraphBuilder& b, const Op& op) {
  if (op.inputs.size() > 1 && op.needs_gradient[1]) {
    const CapturedValue& source = b.value(op.inputs[1]);
    const DType dtype = output(b, op).dtype;
    const Bytes bytes = checked_multiply(source.shape.elements(), size_of(dtype));
    b.give(op, 1, b.view(aten::kSlice, gradient(b, op), bytes), source.shape.elements(), dtype);
  }
  part_backward(b, op);
}

}  // namespace

void view_forward(GraphBuilder& b, const Op& op) {
  const NodeIndex from = b.node_of(op.inputs.front());
  for (const std::int32_t out : op.outputs) {
    b.set_node(out, b.graph.add({.kind = NodeKind::kView,
                                 .recomputable = true,
                                 .dtype = b.value(out).dtype,
                                 .bytes = b.bytes_of(out),
                                 .op = op.name,
                                 .inputs = {from}},
                                op.outputs.size() > 1));
  }
}

void view_backward(GraphBuilder& b, const Op& op) {
  b.give(op, 0, b.view(*op.name, gradient(b, op), b.bytes_of(op.inputs.front())));
}

std::span<const OperatorRule> shape_rules() {
  static constexpr OperatorRule kRules[] = {
      {CompileRule::kView, view_forward, view_backward},
      {CompileRule::kExpand, view_forward, expand_backward},
      {CompileRule::kPart, view_forward, part_backward},
      {CompileRule::kSplit, view_forward, split_backward},
      {CompileRule::kConcatenate, cat_forward, cat_backward},
      {CompileRule::kSliceScatter, slice_scatter_forward, slice_scatter_backward},
  };
  return kRules;
}

}  // namespace memcalc::compile
