// Reductions, norms, softmax and loss: decomposed as torch/_decomp/decompositions.py does.
// MIRRORS(torch, "_decomp/decompositions.py", "2.11.0")
// MIRRORS(torch, "_inductor/lowering.py", "2.11.0")
#include "memcalc/train/compile/rules_internal.h"

#include <utility>

#include "memcalc/symbolic/aten_programs.h"

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

/// (x - mean) * rsqrt(var + eps), one mean and one variance for each of `rows`; `across_rows` of channels.
Normalized normalize(GraphBuilder& b, std::int32_t v, std::int64_t rows, bool across_rows = false) {
  const Sizes s = sizes_of(b, v);
  const Bytes row_bytes = checked_multiply(rows, size_of(s.computation));
  Normalized n{.x = widened(b, v), .rstd = kNone, .centered = kNone, .normalized = kNone};
  const NodeIndex variance = b.reduction(aten::kVarMean, {n.x}, row_bytes, s.computation);
  const NodeIndex mean = b.reduction(aten::kMean, {n.x}, row_bytes, s.computation);
  b.graph[variance].across_rows = b.graph[mean].across_rows = across_rows;
  const NodeIndex shifted = b.pointwise(aten::kAdd, {variance}, row_bytes, s.computation);
  n.rstd = b.pointwise(aten::kRsqrt, {shifted}, row_bytes, s.computation);
  n.centered = b.pointwise(aten::kSub, {n.x, mean}, s.inner, s.computation);
  n.normalized = b.pointwise(aten::kMul, {n.centered, n.rstd}, s.inner, s.computation);
  return n;
}

/// Times weight, plus bias, where there are.
void scale_and_shift(GraphBuilder& b, const Op& op, NodeIndex normalized) {
  const Sizes s = sizes_of(b, op.inputs.front());
  NodeIndex y = normalized;
  if (op.inputs.size() > 1) y = b.pointwise(aten::kMul, {y, b.node_of(op.inputs[1])}, s.inner, s.computation);
  if (op.inputs.size() > 2) y = b.pointwise(aten::kAdd, {y, b.node_of(op.inputs[2])}, s.inner, s.computation);
  finish(b, op, y);
}

std::int64_t rows_of(const GraphBuilder& b, const Op& op) {
  const Shape& shape = b.value(op.inputs.front()).shape;
  return shape.elements() / shape[-1];
}

/// Of a norm: as many as it keeps statistics of, which it saves last.
std::int64_t normalized_rows(const GraphBuilder& b, const Op& op) {
  return op.saved.empty() ? rows_of(b, op) : b.value(op.saved.back()).shape.elements();
}

void layer_norm_forward(GraphBuilder& b, const Op& op) {
  const Normalized n = normalize(b, op.inputs.front(), normalized_rows(b, op));
  b.kept(op) = {n.normalized, n.rstd};
  scale_and_shift(b, op, n.normalized);
}

/// native_layer_norm_backward: rstd / N * (N g w - sum(g w) - xhat * sum(g w xhat)).
void layer_norm_backward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const Bytes row_bytes = checked_multiply(normalized_rows(b, op), size_of(s.computation));
  const NodeIndex xhat = b.kept(op)[0];
  const NodeIndex g = wide_gradient(b, op);
  const bool has_weight = op.inputs.size() > 1;
  const NodeIndex weighted =
      has_weight ? b.pointwise(aten::kMul, {g, b.node_of(op.inputs[1])}, s.inner, s.computation) : g;
  const NodeIndex times_n = b.pointwise(aten::kDiv, {weighted}, s.inner, s.computation);
  const NodeIndex sum = b.reduction(aten::kSum, {weighted}, row_bytes, s.computation);
  const NodeIndex product = b.pointwise(aten::kMul, {weighted, xhat}, s.inner, s.computation);
  const NodeIndex product_sum = b.reduction(aten::kSum, {product}, row_bytes, s.computation);
  const NodeIndex correction = b.pointwise(aten::kMul, {xhat, product_sum}, s.inner, s.computation);
  NodeIndex inner = b.pointwise(aten::kSub, {times_n, sum}, s.inner, s.computation);
  inner = b.pointwise(aten::kSub, {inner, correction}, s.inner, s.computation);
  const NodeIndex factor = b.pointwise(aten::kDiv, {b.kept(op)[1]}, row_bytes, s.computation);
  b.give(op, 0, b.pointwise(aten::kMul, {factor, inner}, s.inner, s.computation), s.elements, s.computation);
  if (has_weight) b.give(op, 1, b.pointwise(aten::kMul, {g, xhat}, s.inner, s.computation), s.elements, s.computation);
  if (op.inputs.size() > 2) b.give(op, 2, g, s.elements, s.computation);
}

std::int64_t channels_of(const GraphBuilder& b, const Op& op) { return b.value(op.inputs.front()).shape[1]; }

void batch_norm_forward(GraphBuilder& b, const Op& op) {
  const Normalized n = normalize(b, op.inputs.front(), channels_of(b, op), true);
  b.kept(op) = {n.centered, n.rstd};
  scale_and_shift(b, op, n.normalized);
}

void batch_norm_backward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const std::int64_t channels = channels_of(b, op);
  const Bytes channel_bytes = checked_multiply(channels, size_of(s.computation));
  const NodeIndex centered = b.kept(op)[0], rstd = b.kept(op)[1];
  const NodeIndex g = wide_gradient(b, op);
  const NodeIndex sum = b.reduction(aten::kSum, {g}, channel_bytes, s.computation);
  const NodeIndex product = b.pointwise(aten::kMul, {g, centered}, s.inner, s.computation);
  const NodeIndex product_sum = b.reduction(aten::kSum, {product}, channel_bytes, s.computation);
  b.graph[sum].across_rows = b.graph[product_sum].across_rows = true;
  const NodeIndex projection = b.pointwise(aten::kMul, {centered, product_sum, rstd}, s.inner, s.computation);
  NodeIndex inner = b.pointwise(aten::kSub, {g, projection, sum}, s.inner, s.computation);
  std::vector<NodeIndex> factors{inner, rstd};
  if (op.inputs.size() > 1) factors.push_back(b.node_of(op.inputs[1]));
  inner = b.pointwise(aten::kMul, std::move(factors), s.inner, s.computation);
  b.give(op, 0, inner, s.elements, s.computation);
  if (op.inputs.size() == 1) return;
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

/// Of a sum: only the mean is divided by the count of labels (_nll_loss_forward, _nll_loss_backward).
bool is_sum(const Op& op) { return op.name == &aten::kNllLossSum.node; }

void nll_loss_forward(GraphBuilder& b, const Op& op) {
  const std::int64_t rows = rows_of(b, op);
  const DType dtype = b.value(op.inputs.front()).dtype;
  const NodeIndex target = b.node_of(op.saved.at(1));
  const NodeIndex counted = b.pointwise(aten::kWhere, {target}, rows, DType::kBool);
  const NodeIndex index = b.pointwise(aten::kWhere, {counted, target}, rows * 8, DType::kInt64);
  const NodeIndex picked =
      b.pointwise(aten::kGather, {b.node_of(op.inputs.front()), index}, checked_multiply(rows, size_of(dtype)), dtype);
  if (is_sum(op)) {
    b.kept(op) = {counted, index};
    b.set_node(op.outputs.front(), b.reduction(aten::kSum, {picked, counted}, size_of(dtype), dtype));
    return;
  }
  const NodeIndex count = b.reduction(aten::kSum, {counted}, size_of(dtype), dtype);
  const NodeIndex sum = b.reduction(aten::kSum, {picked, counted}, size_of(dtype), dtype);
  b.kept(op) = {counted, index, count};
  b.set_node(op.outputs.front(), b.pointwise(aten::kDiv, {sum, count}, b.bytes_of(op.outputs.front()), dtype));
}

void nll_loss_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  const DType dtype = b.value(in).dtype;
  const auto& kept = b.kept(op);
  const NodeIndex given = gradient(b, op);
  const NodeIndex scaled = is_sum(op) ? given : b.pointwise(aten::kDiv, {given, kept[2]}, size_of(dtype), dtype);
  const NodeIndex one_hot = b.graph.add({.kind = NodeKind::kPointwise,
                                         .dtype = dtype,
                                         .bytes = b.bytes_of(in),
                                         .op = &aten::kScatter,
                                         .inputs = {kept[1]}});
  const NodeIndex by_row =
      b.pointwise(aten::kWhere, {kept[0], scaled}, checked_multiply(rows_of(b, op), size_of(dtype)), dtype);
  b.give(op, 0, b.pointwise(aten::kMul, {one_hot, by_row}, b.bytes_of(in), dtype));
}

/// native_group_norm: the mean and the variance of each group.
void group_norm_forward(GraphBuilder& b, const Op& op) {
  const Normalized n = normalize(b, op.inputs.front(), normalized_rows(b, op));
  b.kept(op) = {n.x, n.rstd};
  scale_and_shift(b, op, n.normalized);
}

/// native_group_norm_backward: sums of g x and of g over each channel; from these three factors of each group.
void group_norm_backward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const Shape& shape = b.value(op.inputs.front()).shape;
  const std::int64_t channels = shape[1];
  const Bytes of_channels = checked_multiply(checked_multiply(shape[0], channels), size_of(s.computation));
  const Bytes of_groups = checked_multiply(normalized_rows(b, op), size_of(s.computation));
  const NodeIndex x = b.kept(op)[0], rstd = b.kept(op)[1], g = wide_gradient(b, op);
  const NodeIndex product = b.pointwise(aten::kMul, {g, x}, s.inner, s.computation);
  const NodeIndex ds = b.reduction(aten::kSum, {product}, of_channels, s.computation);
  const NodeIndex db = b.reduction(aten::kSum, {g}, of_channels, s.computation);
  const bool has_weight = op.inputs.size() > 1;
  const auto weighed = [&](NodeIndex sums) {
    return has_weight ? b.pointwise(aten::kMul, {sums, b.node_of(op.inputs[1])}, of_channels, s.computation) : sums;
  };
  const NodeIndex ds_of_group = b.reduction(aten::kSum, {weighed(ds)}, of_groups, s.computation);
  const NodeIndex db_of_group = b.reduction(aten::kSum, {weighed(db)}, of_groups, s.computation);
  const NodeIndex c1 =
      has_weight ? b.pointwise(aten::kMul, {rstd, b.node_of(op.inputs[1])}, of_channels, s.computation) : rstd;
  const NodeIndex c2 = b.pointwise(aten::kMul, {ds_of_group, db_of_group, rstd}, of_groups, s.computation);
  const NodeIndex c3 = b.pointwise(aten::kSub, {c2, db_of_group, rstd}, of_groups, s.computation);
  const NodeIndex first = b.pointwise(aten::kMul, {g, c1}, s.inner, s.computation);
  const NodeIndex second = b.pointwise(aten::kMul, {x, c2}, s.inner, s.computation);
  b.give(op, 0, b.pointwise(aten::kAdd, {first, second, c3}, s.inner, s.computation), s.elements, s.computation);
  const std::int64_t sums = shape[0] * channels;
  if (has_weight)
    b.give(op, 1, b.pointwise(aten::kMul, {ds, db, rstd}, of_channels, s.computation), sums, s.computation);
  if (op.inputs.size() > 2) b.give(op, 2, db, sums, s.computation);
}

/// amax, amin: the gradient is shared among the values that are equal to the result.
void extremum_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front(), out = op.outputs.front();
  const std::int64_t elements = b.value(in).shape.elements();
  const DType dtype = b.value(in).dtype;
  const NodeIndex equal = b.pointwise(aten::kWhere, {b.node_of(in), b.node_of(out)}, elements, DType::kBool);
  const NodeIndex count = b.reduction(aten::kSum, {equal}, b.value(out).shape.elements() * 8, DType::kInt64);
  b.give(op, 0, b.pointwise(aten::kDiv, {gradient(b, op), equal, count}, b.bytes_of(in), dtype));
}

/// The largest, then the logarithm of the sum of the exponentials.
void logsumexp_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front(), out = op.outputs.front();
  const DType dtype = b.value(out).dtype;
  const Bytes bytes = b.bytes_of(out);
  const NodeIndex x = b.node_of(in);
  const NodeIndex largest = b.reduction(aten::kAmax, {x}, bytes, dtype);
  const NodeIndex exponential = b.pointwise(aten::kExp, {x, largest}, b.bytes_of(in), b.value(in).dtype);
  const NodeIndex log = b.pointwise(aten::kLog, {b.reduction(aten::kSum, {exponential}, bytes, dtype)}, bytes, dtype);
  b.set_node(out, b.pointwise(aten::kAdd, {log, largest}, bytes, dtype));
}

/// g exp(x - y)
void logsumexp_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  const NodeIndex share =
      b.pointwise(aten::kExp, {b.node_of(in), b.node_of(op.outputs.front())}, b.bytes_of(in), b.value(in).dtype);
  b.give(op, 0, b.pointwise(aten::kMul, {gradient(b, op), share}, b.bytes_of(in), b.value(in).dtype));
}

/// var; std is its root.
template <bool root>
void variance_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  const DType dtype = wide(b.value(out).dtype);
  const Bytes bytes = checked_multiply(b.value(out).shape.elements(), size_of(dtype));
  const NodeIndex variance = b.reduction(aten::kVarMean, {widened(b, op.inputs.front())}, bytes, dtype);
  finish(b, op, root ? b.pointwise(aten::kRsqrt, {variance}, bytes, dtype) : variance);
}

/// 2 / n g (x - mean), for std by 2 y.
template <bool root>
void variance_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front(), out = op.outputs.front();
  const DType dtype = b.value(in).dtype;
  const NodeIndex x = b.node_of(in);
  NodeIndex g = gradient(b, op);
  if (root) g = b.pointwise(aten::kDiv, {g, b.node_of(out)}, b.bytes_of(out), b.value(out).dtype);
  const NodeIndex mean = b.reduction(aten::kMean, {x}, b.bytes_of(out), b.value(out).dtype);
  const NodeIndex centered = b.pointwise(aten::kSub, {x, mean}, b.bytes_of(in), dtype);
  b.give(op, 0, b.pointwise(aten::kMul, {g, centered}, b.bytes_of(in), dtype));
}

/// linalg_vector_norm: the root of the sum of the squares.
void vector_norm_forward(GraphBuilder& b, const Op& op) {
  const Sizes s = sizes_of(b, op.inputs.front());
  const std::int64_t rows = output(b, op).shape.elements();
  const Bytes bytes = checked_multiply(rows, size_of(s.computation));
  const NodeIndex square = b.pointwise(aten::kMul, {widened(b, op.inputs.front())}, s.inner, s.computation);
  const NodeIndex sum = b.reduction(aten::kSum, {square}, bytes, s.computation);
  finish(b, op, b.pointwise(aten::kRsqrt, {sum}, bytes, s.computation));
}

/// g x / y, 0 where y is 0.
void vector_norm_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  const DType dtype = b.value(in).dtype;
  const NodeIndex quotient =
      b.pointwise(aten::kDiv, {b.node_of(in), b.node_of(op.outputs.front())}, b.bytes_of(in), dtype);
  b.give(op, 0, b.pointwise(aten::kMul, {gradient(b, op), quotient}, b.bytes_of(in), dtype));
}

/// _weight_norm_interface: v g / |v|. Its derivative is a kernel (lowering.py, make_fallback).
void weight_norm_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t v = op.inputs[0], g = op.inputs[1];
  const DType dtype = wide(b.value(g).dtype);
  const Bytes bytes = checked_multiply(b.value(g).shape.elements(), size_of(dtype));
  const NodeIndex norm = b.reduction(aten::kSum, {b.node_of(v)}, bytes, dtype);
  for (const std::int32_t further : b.further_results(op)) b.set_node(further, norm);
  finish(b, op, b.pointwise(aten::kMul, {b.node_of(v), b.node_of(g), norm}, b.bytes_of(v), b.value(v).dtype));
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
      {CompileRule::kGroupNorm, group_norm_forward, group_norm_backward},
      {CompileRule::kAmax, reduction_forward, extremum_backward},
      {CompileRule::kLogsumexp, logsumexp_forward, logsumexp_backward},
      {CompileRule::kVar, variance_forward<false>, variance_backward<false>},
      {CompileRule::kStd, variance_forward<true>, variance_backward<true>},
      {CompileRule::kVectorNorm, vector_norm_forward, vector_norm_backward},
      {CompileRule::kWeightNorm, weight_norm_forward, kernel_backward},
  };
  return kRules;
}

}  // namespace memcalc::compile
