// What the files of rules share. rules_shapes.cc: views and parts; rules_pointwise.cc; rules_norms.cc: reductions,
// norms, losses; rules_kernels.cc: products, convolutions, attention, everything else; rules_float8.cc.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "memcalc/train/compile/rules.h"

namespace memcalc::compile {

using Op = CapturedOperator;

/// Reduced precision is computed in float32 inside of a decomposition.
[[nodiscard]] inline DType wide(DType dtype) { return is_half(dtype) ? DType::kFloat32 : dtype; }

struct Sizes {
  std::int64_t elements;
  DType dtype;        // of the operand
  DType computation;  // of what is between the operators of the decomposition
  Bytes inner;        // of a tensor of the computation
};
[[nodiscard]] Sizes sizes_of(const GraphBuilder& b, std::int32_t v);

/// A value in the type that a decomposition computes in.
[[nodiscard]] NodeIndex widened(GraphBuilder& b, std::int32_t v);
/// The output, in its own type: `inner` itself where that is the type already.
void finish(GraphBuilder& b, const Op& op, NodeIndex inner);

[[nodiscard]] inline NodeIndex gradient(const GraphBuilder& b, const Op& op) {
  return b.gradient_of(op.outputs.front());
}
[[nodiscard]] inline const CapturedValue& output(const GraphBuilder& b, const Op& op) {
  return b.value(op.outputs.front());
}
/// The gradient in the type that a decomposed derivative computes in.
[[nodiscard]] NodeIndex wide_gradient(GraphBuilder& b, const Op& op);

/// Rules that several kinds of operators have.
void view_forward(GraphBuilder& b, const Op& op);
void view_backward(GraphBuilder& b, const Op& op);
void pointwise_forward(GraphBuilder& b, const Op& op);
void pointwise_backward(GraphBuilder& b, const Op& op);
void kernel_forward(GraphBuilder& b, const Op& op);
void kernel_backward(GraphBuilder& b, const Op& op);

[[nodiscard]] std::span<const OperatorRule> shape_rules();
[[nodiscard]] std::span<const OperatorRule> pointwise_rules();
[[nodiscard]] std::span<const OperatorRule> norm_rules();
[[nodiscard]] std::span<const OperatorRule> kernel_rules();
[[nodiscard]] std::span<const OperatorRule> float8_rules();

}  // namespace memcalc::compile
