// Views, parts of tensors, concatenation.
#include "memcalc/train/compile/rules_internal.h"

#include <utility>

namespace memcalc::compile {

namespace {

constexpr Operator kCat{"aten::cat"}, kSliceScatter{"aten::slice_scatter"}, kView{"aten::view"};

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
                      .op = &kSliceScatter,
                      .inputs = {gradient(b, op)}}));
}

NodeIndex concatenated(GraphBuilder& b, std::vector<NodeIndex> parts, Bytes bytes, DType dtype) {
  return b.graph.add({.kind = NodeKind::kPointwise,
                      .concatenates = true,
                      .dtype = dtype,
                      .bytes = bytes,
                      .op = &kCat,
                      .inputs = std::move(parts)});
}

void split_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  std::vector<NodeIndex> parts;
  for (const std::int32_t out : op.outputs) {
    if (b.gradient_of(out) != kNone) parts.push_back(b.gradient_of(out));
  }
  b.give(op, 0, concatenated(b, std::move(parts), b.bytes_of(in), b.value(in).dtype));
}

void cat_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  b.set_node(out, concatenated(b, b.operands(op), b.bytes_of(out), b.value(out).dtype));
}

void cat_backward(GraphBuilder& b, const Op& op) {
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (op.needs_gradient[i]) b.give(op, i, b.view(kCat, gradient(b, op), b.bytes_of(op.inputs[i])));
  }
}

}  // namespace

void view_backward(GraphBuilder& b, const Op& op) {
  b.give(op, 0, b.view(*op.name, gradient(b, op), b.bytes_of(op.inputs.front())));
}

std::span<const OperatorRule> shape_rules() {
  static constexpr OperatorRule kRules[] = {
      {"ViewBackward0", view_forward, view_backward},       {"UnsafeViewBackward0", view_forward, view_backward},
      {"TBackward0", view_forward, view_backward},          {"TransposeBackward0", view_forward, view_backward},
      {"PermuteBackward0", view_forward, view_backward},    {"UnsqueezeBackward0", view_forward, view_backward},
      {"SqueezeBackward1", view_forward, view_backward},    {"ViewAsComplexBackward0", view_forward, view_backward},
      {"ViewAsRealBackward0", view_forward, view_backward}, {"ExpandBackward0", view_forward, expand_backward},
      {"SliceBackward0", view_forward, part_backward},      {"SelectBackward0", view_forward, part_backward},
      {"SplitBackward0", view_forward, split_backward},     {"SplitWithSizesBackward0", view_forward, split_backward},
      {"CatBackward0", cat_forward, cat_backward},
  };
  return kRules;
}

}  // namespace memcalc::compile
