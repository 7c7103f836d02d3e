// Reductions, norms, softmax and loss: decomposed as torch/_decomp/decompositions.py does.
#include "memcalc/train/compile/rules_internal.h"

#include <utility>

#include "memcalc/symbolic/aten.h"

namespace memcalc::compile {

namespace {

void reduction_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  b.set_node(out, b.reduction(*op.name, b.operands(op), b.bytes_of(out), b.value(out).dtype));
}

void reduction_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  const NodeIndex expanded = b.view(aten::kExpand, gradient(b, op), b.bytes_of(in));
  b.give(op, 0, b.pointwise(aten::kDiv, {expanded}, b.bytes_of(in), b.value(in).dtype));
}

struct Normalized {
  NodeIndex x, rstd, centered, normalized;
};

/// (x - mean) * rsqrt(var + eps), one mean and one variance for each of `rows`.
Normalized normalize(GraphBuilder& b, std::int32_t v, std::int64_t rows) {
  const Sizes s = sizes_of(b, v);
  const Bytes row_bytes = checked_multiply(rows, size_of(s.computation));
  Normalized n{.x = widened(b, v), .rstd = kNone, .centered = kNone, .normalized = kNone};
  const NodeIndex variance = b.reduction(aten::kVarMean, {n.x}, row_bytes, s.computation);
  const NodeIndex mean = b.reduction(aten::kMean, {n.x}, row_bytes, s.computation);
  const NodeIndex shifted = b.pointwise(aten::kAdd, {variance}, row_bytes, s.computation);
  n.rstd = b.pointwise(aten::kRsqrt, {shifted}, row_bytes, s.computation);
  n.centered = b.pointwise(aten::kSub, {n.x, mean}, s.inner, s.computation);
  n.normalized = b.pointwise(aten::kMul, {n.centered, n.rstd}, s.inner, s.computation);
  return n;
}

/// Times weight, plus bias.
void scale_and_shift(GraphBuilder& b, const Op& op, NodeIndex normalized) {
  const Sizes s = sizes_of(b, op.inputs.front());
  NodeIndex y = b.pointwise(aten::kMul, {normalized, b.node_of(op.inputs[1])}, s.inner, s.computation);
  if (op.inputs.size() > 2) y = b.pointwise(aten::kAdd, {y, b.node_of(op.inputs[2])}, s.inner, s.computation);
  finish(b, op, y);
}

std::int64_t rows_of(const GraphBuilder& b, const Op& op) {
  const Shape& shape = b.value(op.inputs.front()).shape;
  return shape.elements() / shape[-1];
}

void layer_norm_forward(GraphBuilder& b, const Op& op) {
  const Normalized n = normalize(b, op.inputs.front(), rows_of(b, op));
  b.kept(op) = {n.normalized, n.rstd};
  scale_and_shift(b, op, n.normalized);
}

/// native_layer_norm_backward: rstd / N * (N g w - sum(g w) - xhat * sum(g w xhat)).
void layer_norm_backward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const Bytes row_bytes = checked_multiply(rows_of(b, op), size_of(s.computation));
  const NodeIndex xhat = b.kept(op)[0];
  const NodeIndex g = wide_gradient(b, op);
  const NodeIndex weighted = b.pointwise(aten::kMul, {g, b.node_of(op.inputs[1])}, s.inner, s.computation);
  const NodeIndex times_n = b.pointwise(aten::kDiv, {weighted}, s.inner, s.computation);
  const NodeIndex sum = b.reduction(aten::kSum, {weighted}, row_bytes, s.computation);
  const NodeIndex product = b.pointwise(aten::kMul, {weighted, xhat}, s.inner, s.computation);
  const NodeIndex product_sum = b.reduction(aten::kSum, {product}, row_bytes, s.computation);
  const NodeIndex correction = b.pointwise(aten::kMul, {xhat, product_sum}, s.inner, s.computation);
  NodeIndex inner = b.pointwise(aten::kSub, {times_n, sum}, s.inner, s.computation);
  inner = b.pointwise(aten::kSub, {inner, correction}, s.inner, s.computation);
  const NodeIndex factor = b.pointwise(aten::kDiv, {b.kept(op)[1]}, row_bytes, s.computation);
  b.give(op, 0, b.pointwise(aten::kMul, {factor, inner}, s.inner, s.computation), s.elements, s.computation);
  const NodeIndex by_weight = b.pointwise(aten::kMul, {g, xhat}, s.inner, s.computation);
  b.give(op, 1, by_weight, s.elements, s.computation);
  if (op.inputs.size() > 2) b.give(op, 2, g, s.elements, s.computation);
}

void batch_norm_forward(GraphBuilder& b, const Op& op) {
  const Normalized n = normalize(b, op.inputs.front(), b.value(op.inputs[1]).shape.elements());
  b.kept(op) = {n.centered, n.rstd};
  scale_and_shift(b, op, n.normalized);
}

void batch_norm_backward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const Bytes channel_bytes = checked_multiply(b.value(op.inputs[1]).shape.elements(), size_of(s.computation));
  const NodeIndex centered = b.kept(op)[0], rstd = b.kept(op)[1];
  const NodeIndex g = wide_gradient(b, op);
  const NodeIndex sum = b.reduction(aten::kSum, {g}, channel_bytes, s.computation);
  const NodeIndex product = b.pointwise(aten::kMul, {g, centered}, s.inner, s.computation);
  const NodeIndex product_sum = b.reduction(aten::kSum, {product}, channel_bytes, s.computation);
  const NodeIndex projection = b.pointwise(aten::kMul, {centered, product_sum, rstd}, s.inner, s.computation);
  NodeIndex inner = b.pointwise(aten::kSub, {g, projection, sum}, s.inner, s.computation);
  inner = b.pointwise(aten::kMul, {inner, rstd, b.node_of(op.inputs[1])}, s.inner, s.computation);
  b.give(op, 0, inner, s.elements, s.computation);
  const std::int64_t channels = b.value(op.inputs[1]).shape.elements();
  b.give(op, 1, b.pointwise(aten::kMul, {product_sum, rstd}, channel_bytes, s.computation), channels, s.computation);
  b.give(op, 2, sum, channels, s.computation);
}

void softmax_forward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const Bytes row_bytes = checked_multiply(rows_of(b, op), size_of(s.computation));
  const NodeIndex x = widened(b, op.inputs.front());
  const NodeIndex largest = b.reduction(aten::kAmax, {x}, row_bytes, s.computation);
  const NodeIndex shifted = b.pointwise(aten::kSub, {x, largest}, s.inner, s.computation);
  const NodeIndex exponential = b.pointwise(aten::kExp, {shifted}, s.inner, s.computation);
  const NodeIndex sum = b.reduction(aten::kSum, {exponential}, row_bytes, s.computation);
  finish(b, op, b.pointwise(aten::kDiv, {exponential, sum}, s.inner, s.computation));
}

/// y g - y sum(y g)
void softmax_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  const Sizes s = sizes_of(b, out);
  const Bytes row_bytes = checked_multiply(rows_of(b, op), size_of(s.computation));
  const NodeIndex y = widened(b, out);
  const NodeIndex product = b.pointwise(aten::kMul, {wide_gradient(b, op), y}, s.inner, s.computation);
  const NodeIndex sum = b.reduction(aten::kSum, {product}, row_bytes, s.computation);
  b.give(op, 0, b.pointwise(aten::kSub, {product, y, sum}, s.inner, s.computation), s.elements, s.computation);
}

void log_softmax_forward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const Bytes row_bytes = checked_multiply(rows_of(b, op), size_of(s.computation));
  const NodeIndex x = widened(b, op.inputs.front());
  const NodeIndex largest = b.reduction(aten::kAmax, {x}, row_bytes, s.computation);
  const NodeIndex shifted = b.pointwise(aten::kSub, {x, largest}, s.inner, s.computation);
  const NodeIndex exponential = b.pointwise(aten::kExp, {shifted}, s.inner, s.computation);
  const NodeIndex sum = b.reduction(aten::kSum, {exponential}, row_bytes, s.computation);
  const NodeIndex log = b.pointwise(aten::kLog, {sum}, row_bytes, s.computation);
  finish(b, op, b.pointwise(aten::kSub, {shifted, log}, s.inner, s.computation));
}

/// g - exp(y) sum(g)
void log_softmax_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  const Sizes s = sizes_of(b, out);
  const Bytes row_bytes = checked_multiply(rows_of(b, op), size_of(s.computation));
  const NodeIndex exponential = b.pointwise(aten::kExp, {widened(b, out)}, s.inner, s.computation);
  const NodeIndex g = wide_gradient(b, op);
  const NodeIndex sum = b.reduction(aten::kSum, {g}, row_bytes, s.computation);
  const NodeIndex product = b.pointwise(aten::kMul, {exponential, sum}, s.inner, s.computation);
  b.give(op, 0, b.pointwise(aten::kSub, {g, product}, s.inner, s.computation), s.elements, s.computation);
}

void nll_loss_forward(GraphBuilder& b, const Op& op) {
  const std::int64_t rows = rows_of(b, op);
  const DType dtype = b.value(op.inputs.front()).dtype;
  const NodeIndex target = b.node_of(op.saved.at(1));
  const NodeIndex counted = b.pointwise(aten::kWhere, {target}, rows, DType::kBool);
  const NodeIndex index = b.pointwise(aten::kWhere, {counted, target}, rows * 8, DType::kInt64);
  const NodeIndex picked =
      b.pointwise(aten::kGather, {b.node_of(op.inputs.front()), index}, checked_multiply(rows, size_of(dtype)), dtype);
  const NodeIndex count = b.reduction(aten::kSum, {counted}, size_of(dtype), dtype);
  const NodeIndex sum = b.reduction(aten::kSum, {picked, counted}, size_of(dtype), dtype);
  b.kept(op) = {counted, index, count};
  b.set_node(op.outputs.front(), b.pointwise(aten::kDiv, {sum, count}, b.bytes_of(op.outputs.front()), dtype));
}

void nll_loss_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  const DType dtype = b.value(in).dtype;
  const auto& kept = b.kept(op);
  const NodeIndex scaled = b.pointwise(aten::kDiv, {gradient(b, op), kept[2]}, size_of(dtype), dtype);
  const NodeIndex one_hot = b.graph.add({.kind = NodeKind::kPointwise,
                                         .dtype = dtype,
                                         .bytes = b.bytes_of(in),
                                         .op = &aten::kScatter,
                                         .inputs = {kept[1]}});
  const NodeIndex by_row =
      b.pointwise(aten::kWhere, {kept[0], scaled}, checked_multiply(rows_of(b, op), size_of(dtype)), dtype);
  b.give(op, 0, b.pointwise(aten::kMul, {one_hot, by_row}, b.bytes_of(in), dtype));
}

}  // namespace

std::span<const OperatorRule> norm_rules() {
  static constexpr OperatorRule kRules[] = {
      {CompileRule::kReduction, reduction_forward, reduction_backward},
      {CompileRule::kLayerNorm, layer_norm_forward, layer_norm_backward},
      {CompileRule::kBatchNorm, batch_norm_forward, batch_norm_backward},
      {CompileRule::kSoftmax, softmax_forward, softmax_backward},
      {CompileRule::kLogSoftmax, log_softmax_forward, log_softmax_backward},
      {CompileRule::kNllLoss, nll_loss_forward, nll_loss_backward},
  };
  return kRules;
}

}  // namespace memcalc::compile
