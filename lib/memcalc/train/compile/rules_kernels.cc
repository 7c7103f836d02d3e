// Kernels of their own: products, convolutions, attention, gathers and scatters, and what has no other rule.
// MIRRORS(torch, "_inductor/fx_passes/pad_mm.py", "2.11.0")
// MIRRORS(torch, "_inductor/ir.py", "2.11.0")
#include "memcalc/train/compile/rules_internal.h"

#include <utility>

#include "memcalc/symbolic/aten.h"

namespace memcalc::compile {

namespace {

constexpr std::int64_t kHalfMultiple = 8, kTf32Multiple = 4;

/// Products of a type whose rows are not aligned, and what padding makes of them: FLOP/s as they stand, where a row has
/// an odd and an even number of elements, and padded; picoseconds that an element of the padded operand's copy takes.
struct PaddedProduct {
  double odd, even, aligned, copied_ps;
};
/// By which rows are not aligned: the result's, as of a head's logits; the operands', as of the gradient of what enters
/// the head, where only the weight is copied, as the gradient is made with room for the padding; those of an operand
/// that is read transposed, as of the gradient of the head's weight.
struct PaddedType {
  PaddedProduct result, operands, turned;
  double large, large_copied_ps;  // of `turned`: elements of an operand from which on one takes longer
  double bound_by_arithmetic;     // FLOPs per element read and written: half of an H100's by its datasheet
};
constexpr double kTera = 1e12, kPicosecond = 1e-12;

// The compiler times both ways (should_pad_bench) and pads where the product as it stands takes more than 1.1 times as
// long. Of an H200, 360 products of heads of 30,522 to 50,265 words and 96 of which only a length is not aligned, as a
// number of tokens: that is no row, and padding it is never worth it (padding_choices_h200.jsonl.gz; without TF32 no
// float32 product is). Of the 336 others 324 are told right, the rest is on the edge. GPT-2's head of 768 features is:
// the gradient of its weight was padded with 8,192 tokens, not with 14,000 (seed 8001) and 11,200 (seed 11001), so that
// elements of larger operands take longer.
constexpr PaddedType kHalf{.result = {95 * kTera, 243 * kTera, 640 * kTera, 7},
                           .operands = {137 * kTera, 243 * kTera, 800 * kTera, 2.2},
                           .turned = {148 * kTera, 243 * kTera, 800 * kTera, 7},
                           .large = 5e8,
                           .large_copied_ps = 7.6,
                           .bound_by_arithmetic = 150};
constexpr PaddedType kTf32{.result = {127 * kTera, 127 * kTera, 325 * kTera, 10.3},
                           .operands = {125 * kTera, 125 * kTera, 369 * kTera, 4},
                           .turned = {115 * kTera, 115 * kTera, 370 * kTera, 7.6},
                           .large = 1.2e8,
                           .large_copied_ps = 8.2,
                           .bound_by_arithmetic = 75};

}  // namespace

std::int64_t padding_multiple(DType dtype, bool tf32) {
  if (is_half(dtype)) return kHalfMultiple;
  return tf32 && dtype == DType::kFloat32 ? kTf32Multiple : 1;
}

bool is_padded(std::int64_t multiple, std::int64_t m, std::int64_t k, std::int64_t n, bool turns) {
  const PaddedType& type = multiple == kHalfMultiple ? kHalf : kTf32;
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double flops = 2 * real(m) * real(k) * real(n);
  if (flops < 2 * type.bound_by_arithmetic * (real(m) * real(k) + real(k) * real(n) + real(m) * real(n))) return false;
  PaddedProduct product = turns ? type.turned : n % multiple != 0 ? type.result : type.operands;
  const std::int64_t row = turns ? m : n % multiple != 0 ? n : k;
  if (row % multiple == 0) return false;
  const double copied = turns ? real(m) * real(k) : real(k) * real(n);  // elements
  if (turns && copied >= type.large) product.copied_ps = type.large_copied_ps;
  constexpr double kMultiplier = 1.1;
  const double padded = copied * product.copied_ps * kPicosecond + flops / product.aligned;
  return flops / (row % 2 != 0 ? product.odd : product.even) > kMultiplier * padded;
}

namespace {

constexpr Operator kConvolutionBackward{"convolution_backward"};
constexpr Operator kConvert{"prims::convert_element_type"};
constexpr Operator kOffsets{"prims::_low_memory_max_pool_with_offsets"};

NodeIndex product(GraphBuilder& b, const Operator& op, std::vector<NodeIndex> inputs, Bytes bytes, DType dtype,
                  bool fuses_bias = false) {
  const NodeIndex node = b.kernel(op, std::move(inputs), bytes, dtype);
  b.graph[node].calls_cublas = true;
  b.graph[node].fuses_bias = fuses_bias;
  return node;
}

/// ir.py, Layout._pad_strides (comprehensive_padding): long rows of a buffer that stays inside begin at multiples of
/// 128 bytes.
std::int64_t padded_stride(std::int64_t row, DType dtype) {
  constexpr std::int64_t kLongRow = 1024, kRowAlignment = 128;
  return row > kLongRow ? round_up(row, kRowAlignment / size_of(dtype)) : row;
}

/// An operand [rows, columns] as the padded product reads it: a copy where it is not aligned.
NodeIndex aligned(GraphBuilder& b, NodeIndex operand, std::int64_t rows, std::int64_t columns, std::int64_t multiple) {
  if (rows % multiple == 0 && columns % multiple == 0) return operand;
  const DType dtype = b.graph[operand].dtype;
  std::int64_t length = round_up(columns, multiple);
  std::int64_t count = round_up(rows, multiple);
  // A gradient [tokens, vocabulary] is read as it is or transposed; the vocabulary is what is not aligned.
  const bool is_gradient = b.graph[operand].after_tangents;
  if (is_gradient && columns % multiple == 0) std::swap(length, count);
  const std::int64_t stride = is_gradient ? padded_stride(length, dtype) : length;
  const Bytes bytes = checked_multiply(checked_multiply(count - 1, stride) + length, size_of(dtype));
  return b.graph.add(
      {.kind = NodeKind::kPointwise, .dtype = dtype, .bytes = bytes, .op = &aten::kConstantPadNd, .inputs = {operand}},
      true);
}

/// [m, k] times [k, n]; a bias comes first. `turns`: as is_padded has it, of [n, k] times [k, m].
NodeIndex matrix_product(GraphBuilder& b, const Operator& op, std::vector<NodeIndex> inputs, DType dtype,
                         std::int64_t m, std::int64_t k, std::int64_t n, bool turns = false) {
  const std::int64_t multiple = padding_multiple(dtype, b.capture.tf32);
  Bytes bytes = checked_multiply(checked_multiply(m, n), size_of(dtype));
  const bool fuses_bias = inputs.size() == 3;
  if (turns ? is_padded(multiple, n, k, m, true) : is_padded(multiple, m, k, n)) {
    const std::size_t first = inputs.size() - 2;
    inputs[first] = aligned(b, inputs[first], m, k, multiple);
    inputs[first + 1] = aligned(b, inputs[first + 1], k, n, multiple);
    bytes = checked_multiply(checked_multiply(round_up(m, multiple), round_up(n, multiple)), size_of(dtype));
  }
  return product(b, op, std::move(inputs), bytes, dtype, fuses_bias);
}

/// Linear's weight.t().
bool is_transposed(const GraphBuilder& b, std::int32_t v) {
  const std::int32_t maker = b.value(v).maker;
  return maker >= 0 && b.capture.operators[static_cast<std::size_t>(maker)].name->name == aten::kT.node.name;
}

void product_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  std::vector<NodeIndex> inputs;
  for (const std::int32_t v : op.inputs) inputs.push_back(b.node_of(v));
  const Shape& to = b.value(out).shape;
  if (to.rank == 2) {
    const std::int64_t k = b.value(op.inputs.back()).shape[0];
    const DType dtype = b.value(out).dtype;
    b.set_node(out, matrix_product(b, *op.name, std::move(inputs), dtype, to[0], k, to[1]));
    return;
  }
  b.set_node(out, product(b, *op.name, std::move(inputs), b.bytes_of(out), b.value(out).dtype, op.inputs.size() == 3));
}

void product_backward_of(GraphBuilder& b, const Op& op, std::size_t input, std::size_t other) {
  if (!op.needs_gradient[input]) return;
  const std::int32_t v = op.inputs[input];
  const Shape& shape = b.value(v).shape;
  const Shape& gradient_shape = output(b, op).shape;
  if (shape.rank == 2) {
    const bool is_first = input < other;  // of [m, k] times [k, n]; its gradient is g times the other, transposed
    const NodeIndex g = gradient(b, op), factor = b.node_of(op.inputs[other]);
    const std::int64_t k = gradient_shape[is_first ? 1 : 0];
    const DType dtype = b.value(v).dtype;
    // Of a weight that is read transposed the gradient is the output's, transposed, times the input.
    const bool turns = !is_first && is_transposed(b, v);
    const NodeIndex given = matrix_product(b, aten::kMm, is_first ? std::vector{g, factor} : std::vector{factor, g},
                                           dtype, shape[0], k, shape[1], turns);
    if (b.graph[given].bytes == b.bytes_of(v)) return b.give(op, input, given);
    return b.give(
        op, input,
        b.pointwise(aten::kConstantPadNd, {given}, b.bytes_of(v), b.value(v).dtype));  // the part of a padded one
  }
  NodeIndex g = gradient(b, op), factor = b.node_of(op.inputs[other]);
  // backward_pass_autocast = "same_as_forward": derivatives are traced under autocast, so that products which the
  // unfused attention computes in float32 have 16-bit derivatives.
  if (b.capture.autocast && b.value(v).dtype == DType::kFloat32) {
    const DType half = *b.capture.autocast;
    const std::int64_t elements = shape.elements();
    g = b.pointwise(kConvert, {g}, checked_multiply(gradient_shape.elements(), size_of(half)), half);
    factor = b.pointwise(kConvert, {factor},
                         checked_multiply(b.value(op.inputs[other]).shape.elements(), size_of(half)), half);
    const NodeIndex given = product(b, aten::kMm, {g, factor}, checked_multiply(elements, size_of(half)), half);
    return b.give(op, input, given, elements, half);
  }
  b.give(op, input, product(b, aten::kMm, {g, factor}, b.bytes_of(v), b.value(v).dtype));
}

void mm_backward(GraphBuilder& b, const Op& op) {
  product_backward_of(b, op, 1, 0);
  product_backward_of(b, op, 0, 1);
}

void addmm_backward(GraphBuilder& b, const Op& op) {  // bias, input, weight
  product_backward_of(b, op, 1, 2);
  product_backward_of(b, op, 2, 1);
  b.give(op, 0, gradient(b, op), output(b, op).shape.elements(), output(b, op).dtype);
}

/// embedding is gathered where it is read, but never computed again.
void embedding_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  b.set_node(out, b.graph.add({.kind = NodeKind::kPointwise,
                               .dtype = b.value(out).dtype,
                               .bytes = b.bytes_of(out),
                               .op = &aten::kEmbedding,
                               .inputs = b.operands(op)}));
}

/// embedding_dense_backward: rows are added to a float32 table of zeros.
void embedding_backward(GraphBuilder& b, const Op& op) {
  const Sizes table = sizes_of(b, op.inputs.front());
  const Sizes rows = sizes_of(b, op.outputs.front());
  std::vector<NodeIndex> inputs{b.pointwise(aten::kWhere, {wide_gradient(b, op)}, rows.inner, rows.computation)};
  for (const std::int32_t v : op.saved) inputs.push_back(b.node_of(v));
  const NodeIndex sum = b.kernel(aten::kIndexPut, std::move(inputs), table.inner, table.computation);
  b.give(op, 0, sum, table.elements, table.computation);
}

/// graph.py, decide_layout_opt: convolutions run with the channels innermost, so images and filters of more than one
/// pixel are copied into that order.
NodeIndex channels_innermost(GraphBuilder& b, std::int32_t v) {
  const NodeIndex node = b.node_of(v);
  const CapturedValue& x = b.value(v);
  if (x.maker >= 0 || x.shape.rank != 4 || x.shape[2] * x.shape[3] == 1) return node;
  return b.pointwise(aten::kClone, {node}, b.bytes_of(v), x.dtype);
}

void convolution_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  const NodeIndex x = channels_innermost(b, op.inputs[0]), filters = channels_innermost(b, op.inputs[1]);
  b.kept(op) = {x, filters};
  b.set_node(out, b.kernel(*op.name, {x, filters}, b.bytes_of(out), b.value(out).dtype));
}

/// The bias of a convolution is summed apart from it.
void convolution_backward(GraphBuilder& b, const Op& op) {
  const NodeIndex g = gradient(b, op);
  const NodeIndex tuple = b.graph.add({.kind = NodeKind::kTuple,
                                       .scratch = op.backward_scratch,
                                       .op = &kConvolutionBackward,
                                       .inputs = {g, b.kept(op)[0], b.kept(op)[1]}},
                                      true);
  for (const std::size_t i : {0U, 1U}) {
    const std::int32_t v = op.inputs[i];
    if (op.needs_gradient[i]) b.give(op, i, b.item(tuple, b.bytes_of(v), b.value(v).dtype));
  }
  if (op.inputs.size() > 2) b.give(op, 2, g, output(b, op).shape.elements(), output(b, op).dtype);
}

/// The pooled values, and where each came from: a byte each.
void max_pool_forward(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  const NodeIndex tuple =
      b.graph.add({.kind = NodeKind::kTuple, .op = op.name, .inputs = {b.node_of(op.inputs.front())}}, true);
  b.set_node(out, b.item(tuple, b.bytes_of(out), b.value(out).dtype));
  b.kept(op) = {b.item(tuple, b.value(out).shape.elements(), DType::kUInt8)};
}

void max_pool_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  b.give(op, 0, b.kernel(kOffsets, {gradient(b, op), b.kept(op)[0]}, b.bytes_of(in), b.value(in).dtype));
}

void gather_backward(GraphBuilder& b, const Op& op) {
  const std::int32_t in = op.inputs.front();
  std::vector<NodeIndex> inputs{gradient(b, op)};
  for (const std::int32_t v : op.saved) inputs.push_back(b.node_of(v));
  b.give(op, 0, b.kernel(aten::kIndexPut, std::move(inputs), b.bytes_of(in), b.value(in).dtype));
}

/// The source's gradient is read from where it was written.
void give_gathered(GraphBuilder& b, const Op& op, std::size_t source) {
  if (op.inputs.size() <= source || !op.needs_gradient[source]) return;
  const std::int32_t v = op.inputs[source];
  const DType dtype = output(b, op).dtype;
  std::vector<NodeIndex> inputs{gradient(b, op)};
  if (!op.saved.empty()) inputs.push_back(b.node_of(op.saved.front()));
  const std::int64_t elements = b.value(v).shape.elements();
  b.give(op, source, b.pointwise(aten::kGather, std::move(inputs), checked_multiply(elements, size_of(dtype)), dtype),
         elements, dtype);
}

/// scatter_add, index_add: a kernel; what was there before has the gradient itself.
void add_at_backward(GraphBuilder& b, const Op& op) {
  b.give(op, 0, gradient(b, op), output(b, op).shape.elements(), output(b, op).dtype);
  give_gathered(b, op, 1);
}

/// scatter: what was there before has the gradient with zeros written into it.
void put_at_backward(GraphBuilder& b, const Op& op) {
  give_gathered(b, op, 1);
  gather_backward(b, op);
}

/// index_copy into zeros.
void index_copy_backward(GraphBuilder& b, const Op& op) { give_gathered(b, op, 0); }

/// max along a dimension: values and places are a reduction each.
void max_forward(GraphBuilder& b, const Op& op) {
  for (const auto& values : {op.outputs, b.further_results(op)}) {
    for (const std::int32_t v : values) {
      b.set_node(v, b.reduction(*op.name, {b.node_of(op.inputs.front())}, b.bytes_of(v), b.value(v).dtype));
    }
  }
}

}  // namespace

void kernel_backward(GraphBuilder& b, const Op& op) {
  std::vector<NodeIndex> inputs;
  for (const std::int32_t v : op.outputs) {
    if (b.gradient_of(v) != kNone) inputs.push_back(b.gradient_of(v));
  }
  for (const std::int32_t v : op.saved) inputs.push_back(b.node_of(v));
  const NodeIndex tuple = b.graph.add(
      {.kind = NodeKind::kTuple, .scratch = op.backward_scratch, .op = op.name, .inputs = std::move(inputs)}, true);
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const std::int32_t v = op.inputs[i];
    if (op.needs_gradient[i]) b.give(op, i, b.item(tuple, b.bytes_of(v), b.value(v).dtype));
  }
}

/// One kernel, its results, and what else it saves for its derivative.
void kernel_forward(GraphBuilder& b, const Op& op) {
  const std::vector<std::int32_t> further = b.further_results(op);
  std::vector<NodeIndex> inputs = b.operands(op);
  if (op.outputs.size() == 1 && further.empty()) {
    const std::int32_t out = op.outputs.front();
    b.set_node(out, b.kernel(*op.name, std::move(inputs), b.bytes_of(out), b.value(out).dtype));
    return;
  }
  const NodeIndex tuple = b.graph.add({.kind = NodeKind::kTuple, .op = op.name, .inputs = std::move(inputs)}, true);
  for (const auto* values : {&op.outputs, &further}) {
    for (const std::int32_t v : *values) b.set_node(v, b.item(tuple, b.bytes_of(v), b.value(v).dtype));
  }
}

std::span<const OperatorRule> kernel_rules() {
  static constexpr OperatorRule kRules[] = {
      {CompileRule::kKernel, kernel_forward, kernel_backward},
      {CompileRule::kProduct, product_forward, mm_backward},
      {CompileRule::kProductWithBias, product_forward, addmm_backward},
      {CompileRule::kConvolution, convolution_forward, convolution_backward},
      {CompileRule::kEmbedding, embedding_forward, embedding_backward},
      {CompileRule::kMaxPool, max_pool_forward, max_pool_backward},
      {CompileRule::kGather, pointwise_forward, gather_backward},
      {CompileRule::kIndexAdd, kernel_forward, add_at_backward},
      {CompileRule::kIndexCopy, kernel_forward, index_copy_backward},
      {CompileRule::kScatter, kernel_forward, put_at_backward},
      {CompileRule::kMax, max_forward, gather_backward},
      {CompileRule::kStridedView, view_forward, gather_backward},
  };
  return kRules;
}

}  // namespace memcalc::compile
