// torchao's Float8Linear (torchao 0.18, float8_linear.py, float8_ops.py): operands are cast to 8 bits with scales from
// their largest absolute values; every cast is traced, so that one which forward and backward share is one.
// MIRRORS(torchao, "float8/float8_linear.py", "0.18.0")
// MIRRORS(torchao, "float8/float8_ops.py", "0.18.0")
#include "memcalc/train/compile/rules_internal.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/linear.h"

namespace memcalc::compile {

namespace {

constexpr Operator kConvert{"prims::convert_element_type"};

struct Operand {
  NodeIndex bits = kNone;   // one byte an element
  NodeIndex scale = kNone;  // float32: one, or one a row
};

/// Casts, and marks what it adds as the checkpoint around the operator says: in a selective one absolute maxima are
/// kept (aten.max.default, of whole tensors only).
class Caster {
 public:
  Caster(GraphBuilder& b, const Op& op, bool in_forward) : b_(b), op_(op), in_forward_(in_forward) {}

  /// `rows`: scales along what is multiplied; tensorwise there is one.
  [[nodiscard]] Operand cast(NodeIndex x, std::int64_t elements, std::int64_t rows) {
    const bool whole = b_.capture.float8 != Float8::kRowwise;
    const std::int64_t scales = whole ? 1 : rows;
    const DType dtype = b_.graph[x].dtype;
    const Bytes inner = checked_multiply(elements, size_of(DType::kFloat32));
    const Bytes scale_bytes = checked_multiply(scales, size_of(DType::kFloat32));
    const NodeIndex absolute = mark(b_.pointwise(aten::kAbs, {x}, checked_multiply(elements, size_of(dtype)), dtype));
    const NodeIndex largest = mark(
        b_.reduction(whole ? aten::kMax : aten::kAmax, {absolute}, checked_multiply(scales, size_of(dtype)), dtype),
        whole && op_.selective);
    const NodeIndex scale = mark(b_.pointwise(aten::kReciprocal, {largest}, scale_bytes, DType::kFloat32));
    NodeIndex y = mark(b_.pointwise(kConvert, {x}, inner, DType::kFloat32));
    y = mark(b_.pointwise(aten::kMul, {y, scale}, inner, DType::kFloat32));
    y = mark(b_.pointwise(aten::kClamp, {y}, inner, DType::kFloat32));
    return {mark(b_.pointwise(kConvert, {y}, elements, DType::kUInt8)), scale};
  }

  /// cuBLAS takes 8-bit operands in one order only; this one is copied into it (t().contiguous().t()).
  [[nodiscard]] NodeIndex transposed(NodeIndex bits) {
    return mark(b_.pointwise(aten::kClone, {bits}, b_.graph[bits].bytes, DType::kUInt8));
  }

  /// weight.t(), which a checkpoint has made again, so that the weight is kept.
  [[nodiscard]] NodeIndex view(NodeIndex bits) { return mark(b_.view(aten::kT, bits, b_.graph[bits].bytes)); }

  [[nodiscard]] NodeIndex product(const Operand& a, const Operand& b, std::int64_t elements, bool kept) {
    std::vector<NodeIndex> inputs{a.bits, b.bits};
    for (const NodeIndex scale : {a.scale, b.scale}) {
      if (scale == kNone) continue;
      inputs.push_back(mark(b_.pointwise(aten::kReciprocal, {scale}, b_.graph[scale].bytes, DType::kFloat32), kept));
    }
    const DType dtype = output(b_, op_).dtype;
    const NodeIndex node =
        mark(b_.kernel(aten::kScaledMm, std::move(inputs), checked_multiply(elements, size_of(dtype)), dtype), kept);
    b_.graph[node].calls_cublas = true;
    return node;
  }

 private:
  NodeIndex mark(NodeIndex i, bool kept = false) {
    GraphNode& node = b_.graph[i];
    if (!in_forward_ || op_.checkpoint == 0 || node.checkpoint != 0) return i;
    node.checkpoint = op_.checkpoint;
    node.recompute = kept ? Recompute::kMustSave : Recompute::kPreferred;
    return i;
  }

  GraphBuilder& b_;
  const Op& op_;
  bool in_forward_;
};

struct ProductSizes {
  std::int64_t m, k, n;
};

ProductSizes product_sizes(const GraphBuilder& b, const Op& op) {
  const Shape& weight = b.value(op.inputs[1]).shape;
  return {b.value(op.inputs[0]).shape.elements() / weight[1], weight[1], weight[0]};
}

/// A weight that FSDP2 has gathered in 8 bits comes with its scale. The parts of such a tensor are arguments of the
/// graph like others, not parameters of the module.
Operand weight_operand(GraphBuilder& b, Caster& caster, const Op& op, std::int64_t rows) {
  const NodeIndex weight = b.node_of(op.inputs[1]);
  if (b.capture.float8 == Float8::kTensorwiseGather) {
    b.graph[weight].is_static = false;
    b.graph[weight].bytes = b.value(op.inputs[1]).shape.elements();
    return {weight, kNone};
  }
  return caster.cast(weight, b.value(op.inputs[1]).shape.elements(), rows);
}

void float8_forward(GraphBuilder& b, const Op& op) {
  const auto [m, k, n] = product_sizes(b, op);
  Caster caster(b, op, true);
  const Operand input = caster.cast(b.node_of(op.inputs[0]), m * k, m);
  Operand weight = weight_operand(b, caster, op, n);
  weight.bits = caster.view(weight.bits);
  b.set_node(op.outputs.front(), caster.product(input, weight, m * n, op.recompute == Recompute::kMustSave));
}

void float8_backward(GraphBuilder& b, const Op& op) {
  const auto [m, k, n] = product_sizes(b, op);
  Caster caster(b, op, false);
  const NodeIndex g = gradient(b, op);
  if (op.needs_gradient[0]) {
    const Operand rows = caster.cast(g, m * n, m);
    Operand weight = weight_operand(b, caster, op, k);
    weight.bits = caster.transposed(weight.bits);
    b.give(op, 0, caster.product(rows, weight, m * k, false));
  }
  if (op.needs_gradient[1]) {
    Operand columns = caster.cast(g, m * n, n);
    Operand input = caster.cast(b.node_of(op.inputs[0]), m * k, k);
    columns.bits = caster.transposed(columns.bits);
    input.bits = caster.transposed(input.bits);
    b.give(op, 1, caster.product(columns, input, n * k, false));
  }
}

}  // namespace

std::span<const OperatorRule> float8_rules() {
  static constexpr OperatorRule kRules[] = {
      {CompileRule::kFloat8Product, float8_forward, float8_backward},
  };
  return kRules;
}

}  // namespace memcalc::compile
