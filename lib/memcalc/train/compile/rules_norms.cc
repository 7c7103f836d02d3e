// Reductions, norms, softmax and loss: decomposed as torch/_decomp/decompositions.py does.
#include "memcalc/train/compile/rules_internal.h"

#include <utility>

namespace memcalc::compile {

namespace {

constexpr Operator kAdd{"aten::add"}, kAmax{"aten::amax"}, kDiv{"aten::div"}, kExp{"aten::exp"};
constexpr Operator kExpand{"aten::expand"}, kGather{"aten::gather"}, kLog{"aten::log"}, kMean{"aten::mean"};
constexpr Operator kMul{"aten::mul"}, kRsqrt{"aten::rsqrt"}, kScatter{"aten::scatter"}, kSub{"aten::sub"};
constexpr Operator kSum{"aten::sum"}, kVar{"aten::var_mean"}, kWhere{"aten::where"};

void reduction_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  b.set_node(out, b.reduction(*op.name, b.operands(op), b.bytes_of(out), b.value(out).dtype));
}

void reduction_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  const NodeIndex expanded = b.view(kExpand, gradient(b, op), b.bytes_of(in));
  b.give(op, 0, b.pointwise(kDiv, {expanded}, b.bytes_of(in), b.value(in).dtype));
}

struct Normalized {
  NodeIndex x, rstd, centered, normalized;
};

/// (x - mean) * rsqrt(var + eps), one mean and one variance for each of `rows`.
Normalized normalize(GraphBuilder& b, std::int32_t v, std::int64_t rows) {
  const Sizes s = sizes_of(b, v);
  const Bytes row_bytes = checked_multiply(rows, size_of(s.computation));
  Normalized n{.x = widened(b, v), .rstd = kNone, .centered = kNone, .normalized = kNone};
  const NodeIndex variance = b.reduction(kVar, {n.x}, row_bytes, s.computation);
  const NodeIndex mean = b.reduction(kMean, {n.x}, row_bytes, s.computation);
  const NodeIndex shifted = b.pointwise(kAdd, {variance}, row_bytes, s.computation);
  n.rstd = b.pointwise(kRsqrt, {shifted}, row_bytes, s.computation);
  n.centered = b.pointwise(kSub, {n.x, mean}, s.inner, s.computation);
  n.normalized = b.pointwise(kMul, {n.centered, n.rstd}, s.inner, s.computation);
  return n;
}

/// Times weight, plus bias.
void scale_and_shift(GraphBuilder& b, const Op& op, NodeIndex normalized) {
  const Sizes s = sizes_of(b, op.inputs.front());
  NodeIndex y = b.pointwise(kMul, {normalized, b.node_of(op.inputs[1])}, s.inner, s.computation);
  if (op.inputs.size() > 2) y = b.pointwise(kAdd, {y, b.node_of(op.inputs[2])}, s.inner, s.computation);
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
  const NodeIndex weighted = b.pointwise(kMul, {g, b.node_of(op.inputs[1])}, s.inner, s.computation);
  const NodeIndex times_n = b.pointwise(kDiv, {weighted}, s.inner, s.computation);
  const NodeIndex sum = b.reduction(kSum, {weighted}, row_bytes, s.computation);
  const NodeIndex product = b.pointwise(kMul, {weighted, xhat}, s.inner, s.computation);
  const NodeIndex product_sum = b.reduction(kSum, {product}, row_bytes, s.computation);
  const NodeIndex correction = b.pointwise(kMul, {xhat, product_sum}, s.inner, s.computation);
  NodeIndex inner = b.pointwise(kSub, {times_n, sum}, s.inner, s.computation);
  inner = b.pointwise(kSub, {inner, correction}, s.inner, s.computation);
  const NodeIndex factor = b.pointwise(kDiv, {b.kept(op)[1]}, row_bytes, s.computation);
  b.give(op, 0, b.pointwise(kMul, {factor, inner}, s.inner, s.computation), s.elements, s.computation);
  const NodeIndex by_weight = b.pointwise(kMul, {g, xhat}, s.inner, s.computation);
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
  const NodeIndex sum = b.reduction(kSum, {g}, channel_bytes, s.computation);
  const NodeIndex product = b.pointwise(kMul, {g, centered}, s.inner, s.computation);
  const NodeIndex product_sum = b.reduction(kSum, {product}, channel_bytes, s.computation);
  const NodeIndex projection = b.pointwise(kMul, {centered, product_sum, rstd}, s.inner, s.computation);
  NodeIndex inner = b.pointwise(kSub, {g, projection, sum}, s.inner, s.computation);
  inner = b.pointwise(kMul, {inner, rstd, b.node_of(op.inputs[1])}, s.inner, s.computation);
  b.give(op, 0, inner, s.elements, s.computation);
  const std::int64_t channels = b.value(op.inputs[1]).shape.elements();
  b.give(op, 1, b.pointwise(kMul, {product_sum, rstd}, channel_bytes, s.computation), channels, s.computation);
  b.give(op, 2, sum, channels, s.computation);
}

void softmax_forward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const Bytes row_bytes = checked_multiply(rows_of(b, op), size_of(s.computation));
  const NodeIndex x = widened(b, op.inputs.front());
  const NodeIndex largest = b.reduction(kAmax, {x}, row_bytes, s.computation);
  const NodeIndex shifted = b.pointwise(kSub, {x, largest}, s.inner, s.computation);
  const NodeIndex exponential = b.pointwise(kExp, {shifted}, s.inner, s.computation);
  const NodeIndex sum = b.reduction(kSum, {exponential}, row_bytes, s.computation);
  finish(b, op, b.pointwise(kDiv, {exponential, sum}, s.inner, s.computation));
}

/// y g - y sum(y g)
void softmax_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  const Sizes s = sizes_of(b, out);
  const Bytes row_bytes = checked_multiply(rows_of(b, op), size_of(s.computation));
  const NodeIndex y = widened(b, out);
  const NodeIndex product = b.pointwise(kMul, {wide_gradient(b, op), y}, s.inner, s.computation);
  const NodeIndex sum = b.reduction(kSum, {product}, row_bytes, s.computation);
  b.give(op, 0, b.pointwise(kSub, {product, y, sum}, s.inner, s.computation), s.elements, s.computation);
}

void log_softmax_forward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const Bytes row_bytes = checked_multiply(rows_of(b, op), size_of(s.computation));
  const NodeIndex x = widened(b, op.inputs.front());
  const NodeIndex largest = b.reduction(kAmax, {x}, row_bytes, s.computation);
  const NodeIndex shifted = b.pointwise(kSub, {x, largest}, s.inner, s.computation);
  const NodeIndex exponential = b.pointwise(kExp, {shifted}, s.inner, s.computation);
  const NodeIndex sum = b.reduction(kSum, {exponential}, row_bytes, s.computation);
  const NodeIndex log = b.pointwise(kLog, {sum}, row_bytes, s.computation);
  finish(b, op, b.pointwise(kSub, {shifted, log}, s.inner, s.computation));
}

/// g - exp(y) sum(g)
void log_softmax_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  const Sizes s = sizes_of(b, out);
  const Bytes row_bytes = checked_multiply(rows_of(b, op), size_of(s.computation));
  const NodeIndex exponential = b.pointwise(kExp, {widened(b, out)}, s.inner, s.computation);
  const NodeIndex g = wide_gradient(b, op);
  const NodeIndex sum = b.reduction(kSum, {g}, row_bytes, s.computation);
  const NodeIndex product = b.pointwise(kMul, {exponential, sum}, s.inner, s.computation);
  b.give(op, 0, b.pointwise(kSub, {g, product}, s.inner, s.computation), s.elements, s.computation);
}

void nll_loss_forward(GraphBuilder& b, const Op& op) {
  const std::int64_t rows = rows_of(b, op);
  const DType dtype = b.value(op.inputs.front()).dtype;
  const NodeIndex target = b.node_of(op.saved.at(1));
  const NodeIndex counted = b.pointwise(kWhere, {target}, rows, DType::kBool);
  const NodeIndex index = b.pointwise(kWhere, {counted, target}, rows * 8, DType::kInt64);
  const NodeIndex picked =
      b.pointwise(kGather, {b.node_of(op.inputs.front()), index}, checked_multiply(rows, size_of(dtype)), dtype);
  const NodeIndex count = b.reduction(kSum, {counted}, size_of(dtype), dtype);
  const NodeIndex sum = b.reduction(kSum, {picked, counted}, size_of(dtype), dtype);
  b.kept(op) = {counted, index, count};
  b.set_node(op.outputs.front(), b.pointwise(kDiv, {sum, count}, b.bytes_of(op.outputs.front()), dtype));
}

void nll_loss_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  const DType dtype = b.value(in).dtype;
  const auto& kept = b.kept(op);
  const NodeIndex scaled = b.pointwise(kDiv, {gradient(b, op), kept[2]}, size_of(dtype), dtype);
  const NodeIndex one_hot = b.graph.add(
      {.kind = NodeKind::kPointwise, .dtype = dtype, .bytes = b.bytes_of(in), .op = &kScatter, .inputs = {kept[1]}});
  const NodeIndex by_row =
      b.pointwise(kWhere, {kept[0], scaled}, checked_multiply(rows_of(b, op), size_of(dtype)), dtype);
  b.give(op, 0, b.pointwise(kMul, {one_hot, by_row}, b.bytes_of(in), dtype));
}

}  // namespace

std::span<const OperatorRule> norm_rules() {
  static constexpr OperatorRule kRules[] = {
      {"MeanBackward1", reduction_forward, reduction_backward},
      {"SumBackward1", reduction_forward, reduction_backward},
      {"AdaptiveAvgPool2DBackward0", reduction_forward, reduction_backward},
      {"AvgPool2DBackward0", reduction_forward, reduction_backward},
      {"NativeLayerNormBackward0", layer_norm_forward, layer_norm_backward},
      {"FusedRmsNormBackward0", layer_norm_forward, layer_norm_backward},
      {"CudnnBatchNormBackward0", batch_norm_forward, batch_norm_backward},
      {"NativeBatchNormBackward0", batch_norm_forward, batch_norm_backward},
      {"SoftmaxBackward0", softmax_forward, softmax_backward},
      {"SafeSoftmaxBackward0", softmax_forward, softmax_backward},
      {"LogSoftmaxBackward0", log_softmax_forward, log_softmax_backward},
      {"NllLossBackward0", nll_loss_forward, nll_loss_backward},
  };
  return kRules;
}

}  // namespace memcalc::compile
