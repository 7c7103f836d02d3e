// Operators that work element by element.
#include "memcalc/train/compile/rules_internal.h"

#include <utility>

namespace memcalc::compile {

namespace {

constexpr Operator kAdd{"aten::add"}, kConvert{"prims::convert_element_type"}, kDiv{"aten::div"}, kErf{"aten::erf"};
constexpr Operator kExp{"aten::exp"}, kGt{"aten::gt"}, kLe{"aten::le"}, kMul{"aten::mul"}, kNeg{"aten::neg"};
constexpr Operator kRand{"prims::inductor_random"}, kWhere{"aten::where"};

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
  NodeIndex y = b.pointwise(kNeg, {x}, s.inner, s.computation);
  y = b.pointwise(kExp, {y}, s.inner, s.computation);
  y = b.pointwise(kAdd, {y}, s.inner, s.computation);
  finish(b, op, b.pointwise(kDiv, {x, y}, s.inner, s.computation));
}

/// 0.5 x (1 + erf(x / sqrt 2)).
void gelu_forward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const NodeIndex x = widened(b, op.inputs.front());
  const NodeIndex half = b.pointwise(kMul, {x}, s.inner, s.computation);
  NodeIndex y = b.pointwise(kDiv, {x}, s.inner, s.computation);
  y = b.pointwise(kErf, {y}, s.inner, s.computation);
  y = b.pointwise(kAdd, {y}, s.inner, s.computation);
  finish(b, op, b.pointwise(kMul, {half, y}, s.inner, s.computation));
}

/// What backward reads of relu is where its result is 0.
void relu_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  const NodeIndex zero = b.pointwise(kLe, {b.node_of(out)}, b.value(out).shape.elements(), DType::kBool);
  b.give(op, 0, b.pointwise(kWhere, {zero, gradient(b, op)}, b.bytes_of(out), b.value(out).dtype));
}

void dropout_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  const CapturedValue& x = b.value(in);
  const NodeIndex random =
      b.graph.add({.kind = NodeKind::kPointwise, .dtype = x.dtype, .bytes = b.bytes_of(in), .op = &kRand}, true);
  const NodeIndex mask = b.pointwise(kGt, {random}, x.shape.elements(), DType::kBool);
  const NodeIndex kept = b.pointwise(kMul, {mask, b.node_of(in)}, b.bytes_of(in), x.dtype);
  b.kept(op) = {mask};
  b.set_node(op.outputs.front(), b.pointwise(kMul, {kept}, b.bytes_of(in), x.dtype));
}

void dropout_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  const DType dtype = b.value(in).dtype;
  const NodeIndex scaled = b.pointwise(kMul, {b.kept(op)[0]}, b.bytes_of(in), dtype);
  b.give(op, 0, b.pointwise(kMul, {gradient(b, op), scaled}, b.bytes_of(in), dtype));
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
      {"CloneBackward0", pointwise_forward, passing_backward},
      {"AddBackward0", pointwise_forward, passing_backward},
      {"ToCopyBackward0", to_copy_forward, passing_backward},
      {"ReluBackward0", pointwise_forward, relu_backward},
      {"SiluBackward0", silu_forward, pointwise_backward},
      {"GeluBackward0", gelu_forward, pointwise_backward},
      {"NativeDropoutBackward0", dropout_forward, dropout_backward},
      {"ConstantPadNdBackward0", pointwise_forward, view_backward},
      {"aten::convert_boolean_attn_mask", pointwise_forward, pointwise_backward},
      {"SubBackward0", pointwise_forward, pointwise_backward},
      {"MulBackward0", pointwise_forward, pointwise_backward},
      {"DivBackward0", pointwise_forward, pointwise_backward},
      {"NegBackward0", pointwise_forward, pointwise_backward},
      {"PowBackward0", pointwise_forward, pointwise_backward},
      {"RsqrtBackward0", pointwise_forward, pointwise_backward},
      {"TanhBackward0", pointwise_forward, pointwise_backward},
      {"SigmoidBackward0", pointwise_forward, pointwise_backward},
      {"WhereBackward0", pointwise_forward, pointwise_backward},
      {"ClampBackward1", pointwise_forward, pointwise_backward},
      {"MaskedFillBackward0", pointwise_forward, pointwise_backward},
      {"RollBackward0", pointwise_forward, pointwise_backward},
      {"HardsigmoidBackward0", pointwise_forward, pointwise_backward},
      {"HardswishBackward0", pointwise_forward, pointwise_backward},
      {"HardtanhBackward0", pointwise_forward, pointwise_backward},
      {"LeakyReluBackward0", pointwise_forward, pointwise_backward},
      {"EluBackward0", pointwise_forward, pointwise_backward},
      {"MishBackward0", pointwise_forward, pointwise_backward},
      {"SoftplusBackward0", pointwise_forward, pointwise_backward},
  };
  return kRules;
}

}  // namespace memcalc::compile
