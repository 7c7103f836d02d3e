// Operators that work element by element.
// MIRRORS(torch, "_decomp/decompositions.py", "2.11.0")
#include "memcalc/train/compile/rules_internal.h"

#include <utility>

#include "memcalc/symbolic/aten.h"

namespace memcalc::compile {

namespace {

constexpr Operator kConvert{"prims::convert_element_type"};
constexpr Operator kUnsafeIndex{"_unsafe_index"};

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
  const NodeIndex random = b.graph.add(
      {.kind = NodeKind::kPointwise, .dtype = x.dtype, .bytes = b.bytes_of(in), .op = &kInductorRandom}, true);
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

/// maximum, minimum: each side gets the gradient where it is the result; where both are, half of it.
void extremum_backward(GraphBuilder& b, const Op& op) {
  const CapturedValue& out = output(b, op);
  const std::int64_t elements = out.shape.elements();
  const NodeIndex a = b.node_of(op.inputs[0]), other = b.node_of(op.inputs[1]);
  for (std::size_t i = 0; i < 2; ++i) {
    if (!op.needs_gradient[i]) continue;
    const NodeIndex lost = b.pointwise(i == 0 ? aten::kLe : aten::kGt, {a, other}, elements, DType::kBool);
    const Bytes bytes = checked_multiply(elements, size_of(out.dtype));
    b.give(op, i, b.pointwise(aten::kWhere, {lost, gradient(b, op)}, bytes, out.dtype), elements, out.dtype);
  }
}

/// (x - target)^2, of which the mean or the sum is taken, or neither.
void mse_loss_forward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs[0]);
  const CapturedValue& out = output(b, op);
  const Bytes inner = checked_multiply(s.elements, size_of(s.dtype));
  const NodeIndex difference =
      b.pointwise(aten::kSub, {b.node_of(op.inputs[0]), b.node_of(op.inputs[1])}, inner, s.dtype);
  const NodeIndex square = b.pointwise(aten::kPow, {difference}, inner, s.dtype);
  const bool reduced = out.shape.elements() != s.elements;
  b.set_node(op.outputs.front(),
             reduced ? b.reduction(aten::kMean, {square}, b.bytes_of(op.outputs.front()), out.dtype) : square);
}

/// mse_loss_backward: norm * (x - target) * gradient.
void mse_loss_backward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs[0]);
  const Bytes inner = checked_multiply(s.elements, size_of(s.dtype));
  const NodeIndex difference =
      b.pointwise(aten::kSub, {b.node_of(op.inputs[0]), b.node_of(op.inputs[1])}, inner, s.dtype);
  const NodeIndex scaled = b.pointwise(aten::kMul, {difference, gradient(b, op)}, inner, s.dtype);
  b.give(op, 0, scaled, s.elements, s.dtype);
  b.give(op, 1, b.pointwise(aten::kNeg, {scaled}, inner, s.dtype), s.elements, s.dtype);
}

/// x.copy_(source): from here on x is the source in x's type. Inputs: x, where it is followed, and the source.
void copy_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  const NodeIndex source = b.node_of(op.inputs.back());
  b.set_node(out, b.pointwise(kConvert, {source}, b.bytes_of(out), b.value(out).dtype));
}

void copy_backward(GraphBuilder& b, const Op& op) {
  const CapturedValue& out = output(b, op);
  b.give(op, op.inputs.size() - 1, gradient(b, op), out.shape.elements(), out.dtype);
  if (op.inputs.size() == 1) return;
  b.give(op, 0, b.pointwise(aten::kZeros, {}, b.bytes_of(op.inputs[0]), b.value(op.inputs[0]).dtype));
}

/// repeat, flip, upsample_nearest2d: element by element, but not on the list of what is computed again.
void moving_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  b.set_node(out, b.graph.add({.kind = NodeKind::kPointwise,
                               .dtype = b.value(out).dtype,
                               .bytes = b.bytes_of(out),
                               .op = op.name,
                               .inputs = b.operands(op)}));
}

/// flip, upsample_nearest2d_backward: the gradient in the input's places.
void moving_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  b.give(op, 0, b.pointwise(*op.name, {gradient(b, op)}, b.bytes_of(in), b.value(in).dtype));
}

/// _decomp/decompositions.py, _upsample_linear_vec and upsample_bicubic2d_vec: so many neighbours of each pixel are
/// gathered, then weighed. Never computed again: aten._unsafe_index is not on that list.
template <int neighbours>
void interpolation_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  const CapturedValue& to = b.value(out);
  std::vector<NodeIndex> gathered;
  for (int i = 0; i < neighbours; ++i) {
    gathered.push_back(b.graph.add({.kind = NodeKind::kPointwise,
                                    .dtype = to.dtype,
                                    .bytes = b.bytes_of(out),
                                    .op = &kUnsafeIndex,
                                    .inputs = {b.node_of(op.inputs.front())}},
                                   true));
  }
  b.set_node(out, b.pointwise(*op.name, std::move(gathered), b.bytes_of(out), to.dtype));
}

/// Each neighbour's part of the gradient is scattered into zeros by a kernel, then all are summed.
template <int neighbours>
void interpolation_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  const CapturedValue& out = output(b, op);
  for (int i = 0; i < neighbours; ++i) {
    const NodeIndex part = b.graph.add({.kind = NodeKind::kPointwise,
                                        .dtype = out.dtype,
                                        .bytes = b.bytes_of(op.outputs.front()),
                                        .op = &aten::kMul,
                                        .inputs = {gradient(b, op)}},
                                       true);
    b.give(op, 0, b.kernel(aten::kIndexPut, {part}, b.bytes_of(in), b.value(in).dtype));
  }
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
      {CompileRule::kExtremum, pointwise_forward, extremum_backward},
      {CompileRule::kMseLoss, mse_loss_forward, mse_loss_backward},
      {CompileRule::kCopy, copy_forward, copy_backward},
      {CompileRule::kMove, moving_forward, moving_backward},
      {CompileRule::kRepeat, moving_forward, passing_backward},
      {CompileRule::kBilinear, interpolation_forward<4>, interpolation_backward<4>},
      {CompileRule::kBicubic, interpolation_forward<16>, interpolation_backward<16>},
  };
  return kRules;
}

}  // namespace memcalc::compile
