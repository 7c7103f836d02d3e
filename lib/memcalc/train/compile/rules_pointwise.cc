// Operators that work element by element.
#include "memcalc/train/compile/rules_internal.h"

#include <utility>

#include "memcalc/symbolic/aten.h"

namespace memcalc::compile {

namespace {

constexpr Operator kConvert{"prims::convert_element_type"};
constexpr Operator kRand{"prims::inductor_random"};

/// add, sub, clone, to: the gradient itself.
void passing_backward(GraphBuilder& b, const Op& op) {
  const CapturedValue& out = output(b, op);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) b.give(op, i, gradient(b, op), out.shape.elements(), out.dtype);
}

void to_copy_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  b.set_node(out, b.pointwise(kConvert, {b.node_of(op.inputs.front())}, b.bytes_of(out), b.value(out).dtype));
}

/// neg, exp, add, div: x / (1 + exp(-x)).
void silu_forward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const NodeIndex x = widened(b, op.inputs.front());
  NodeIndex y = b.pointwise(aten::kNeg, {x}, s.inner, s.computation);
  y = b.pointwise(aten::kExp, {y}, s.inner, s.computation);
  y = b.pointwise(aten::kAdd, {y}, s.inner, s.computation);
  finish(b, op, b.pointwise(aten::kDiv, {x, y}, s.inner, s.computation));
}

/// 0.5 x (1 + erf(x / sqrt 2)).
void gelu_forward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const NodeIndex x = widened(b, op.inputs.front());
  const NodeIndex half = b.pointwise(aten::kMul, {x}, s.inner, s.computation);
  NodeIndex y = b.pointwise(aten::kDiv, {x}, s.inner, s.computation);
  y = b.pointwise(aten::kErf, {y}, s.inner, s.computation);
  y = b.pointwise(aten::kAdd, {y}, s.inner, s.computation);
  finish(b, op, b.pointwise(aten::kMul, {half, y}, s.inner, s.computation));
}

/// What backward reads of relu is where its result is 0.
void relu_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  const NodeIndex zero = b.pointwise(aten::kLe, {b.node_of(out)}, b.value(out).shape.elements(), DType::kBool);
  b.give(op, 0, b.pointwise(aten::kWhere, {zero, gradient(b, op)}, b.bytes_of(out), b.value(out).dtype));
}

void dropout_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  const CapturedValue& x = b.value(in);
  const NodeIndex random =
      b.graph.add({.kind = NodeKind::kPointwise, .dtype = x.dtype, .bytes = b.bytes_of(in), .op = &kRand}, true);
  const NodeIndex mask = b.pointwise(aten::kGt, {random}, x.shape.elements(), DType::kBool);
  const NodeIndex kept = b.pointwise(aten::kMul, {mask, b.node_of(in)}, b.bytes_of(in), x.dtype);
  b.kept(op) = {mask};
  b.set_node(op.outputs.front(), b.pointwise(aten::kMul, {kept}, b.bytes_of(in), x.dtype));
}

void dropout_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  const DType dtype = b.value(in).dtype;
  const NodeIndex scaled = b.pointwise(aten::kMul, {b.kept(op)[0]}, b.bytes_of(in), dtype);
  b.give(op, 0, b.pointwise(aten::kMul, {gradient(b, op), scaled}, b.bytes_of(in), dtype));
}

}  // namespace

/// From the gradient and what eager saves: derivatives are the same formulas.
void pointwise_backward(GraphBuilder& b, const Op& op) {
  const CapturedValue& out = output(b, op);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    if (!op.needs_gradient[i]) continue;
    std::vector<NodeIndex> inputs{gradient(b, op)};
    for (const std::int32_t v : op.saved) {
      // A product's derivative by one factor reads the other.
      const bool own = op.inputs.size() == 2 && v == op.inputs[i] && v != op.inputs[1 - i];
      if (!own) inputs.push_back(b.node_of(v));
    }
    const DType dtype = b.value(op.inputs[i]).dtype;
    const Bytes bytes = checked_multiply(out.shape.elements(), size_of(dtype));
    b.give(op, i, b.pointwise(*op.name, std::move(inputs), bytes, dtype), out.shape.elements(), dtype);
  }
}

void pointwise_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  b.set_node(out, b.pointwise(*op.name, b.operands(op), b.bytes_of(out), b.value(out).dtype));
}

std::span<const OperatorRule> pointwise_rules() {
  static constexpr OperatorRule kRules[] = {
      {CompileRule::kPassing, pointwise_forward, passing_backward},
      {CompileRule::kConvert, to_copy_forward, passing_backward},
      {CompileRule::kRelu, pointwise_forward, relu_backward},
      {CompileRule::kSilu, silu_forward, pointwise_backward},
      {CompileRule::kGelu, gelu_forward, pointwise_backward},
      {CompileRule::kDropout, dropout_forward, dropout_backward},
      {CompileRule::kPad, pointwise_forward, view_backward},
      {CompileRule::kPointwise, pointwise_forward, pointwise_backward},
  };
  return kRules;
}

}  // namespace memcalc::compile
