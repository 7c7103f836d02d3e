// Decompositions: torch/_decomp/decompositions.py and torch/_inductor/decomposition.py. Derivatives: as autograd runs
// them while AOTAutograd traces, decomposed likewise.
// MIRRORS(torch, "_decomp/decompositions.py", "2.11.0")
// MIRRORS(torch, "_inductor/decomposition.py", "2.11.0")
#include "memcalc/train/compile/rules.h"

#include <array>

#include "memcalc/train/compile/rules_internal.h"

namespace memcalc::compile {

namespace {
constexpr Operator kConvert{"prims::convert_element_type"};
}  // namespace

Sizes sizes_of(const GraphBuilder& b, std::int32_t v) {
  const CapturedValue& x = b.value(v);
  const DType computation = wide(x.dtype);
  return {x.shape.elements(), x.dtype, computation, checked_multiply(x.shape.elements(), size_of(computation))};
}

NodeIndex widened(GraphBuilder& b, std::int32_t v) {
  const Sizes s = sizes_of(b, v);
  const NodeIndex x = b.node_of(v);
  return s.dtype == s.computation ? x : b.pointwise(kConvert, {x}, s.inner, s.computation);
}

void finish(GraphBuilder& b, const Op& op, NodeIndex inner) {
  const std::int32_t out = op.outputs.front();
  const CapturedValue& to = b.value(out);
  if (b.graph[inner].dtype != to.dtype) inner = b.pointwise(kConvert, {inner}, b.bytes_of(out), to.dtype);
  b.set_node(out, inner);
}

NodeIndex wide_gradient(GraphBuilder& b, const Op& op) {
  const std::int32_t out = op.outputs.front();
  const Sizes s = sizes_of(b, out);
  const NodeIndex g = gradient(b, op);
  return s.dtype == s.computation ? g : b.pointwise(kConvert, {g}, s.inner, s.computation);
}

const OperatorRule& rule_of(CompileRule rule) {
  static const std::array<OperatorRule, kCompileRuleCount> kByRule = [] {
    std::array<OperatorRule, kCompileRuleCount> all{};
    for (const auto rules : {shape_rules(), pointwise_rules(), norm_rules(), kernel_rules(), float8_rules()}) {
      for (const OperatorRule& each : rules) all[static_cast<std::size_t>(each.rule)] = each;
    }
    return all;
  }();
  return kByRule[static_cast<std::size_t>(rule)];
}

bool is_kernel(const OperatorRule& rule) { return rule.forward == kernel_forward; }

}  // namespace memcalc::compile
