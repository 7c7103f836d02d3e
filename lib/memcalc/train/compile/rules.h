// What an operator is in the joint graph: its decomposition, and what autograd traces for its derivative.
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/symbolic/capture.h"
#include "memcalc/train/compile/graph.h"

namespace memcalc::compile {

/// Random numbers, which are drawn where they are used, from a seed that the graph draws first.
inline constexpr Operator kInductorRandom{"prims::inductor_random"};

/// fx_passes/pad_mm.py, get_alignment_size_dtype: what the sides of products of a type are padded to, elements of 16
/// bytes. 1: of float32 without TF32, whose kernels gain nothing by it, and of other types.
[[nodiscard]] std::int64_t padding_multiple(DType dtype, bool tf32);
/// Whether a product [m, k] times [k, n] gets sides that are multiples of `multiple` (padding_multiple): one whose rows
/// are not aligned does where its arithmetic is the limit and padding, with the copies that it takes, is quicker.
/// `turns`: the first operand is the transposed view of a gradient, which padding would write anew, row by row.
[[nodiscard]] bool is_padded(std::int64_t multiple, std::int64_t m, std::int64_t k, std::int64_t n, bool turns = false);

/// Builds the joint graph operator by operator. Rules see it through this.
class GraphBuilder {
 public:
  explicit GraphBuilder(const GraphCapture& capture)
      : capture(capture),
        node_of_value_(capture.values.size(), kNone),
        gradient_of_value_(capture.values.size(), kNone),
        kept_(capture.operators.size()) {}

  // --- nodes
  [[nodiscard]] NodeIndex node_of(std::int32_t value);
  void set_node(std::int32_t value, NodeIndex node) { node_of_value_[static_cast<std::size_t>(value)] = node; }
  [[nodiscard]] const CapturedValue& value(std::int32_t v) const { return capture.values[static_cast<std::size_t>(v)]; }
  [[nodiscard]] Bytes bytes_of(std::int32_t v) const;
  NodeIndex view(const Operator& op, NodeIndex of, Bytes bytes);
  NodeIndex pointwise(const Operator& op, std::vector<NodeIndex> inputs, Bytes bytes, DType dtype);
  NodeIndex reduction(const Operator& op, std::vector<NodeIndex> inputs, Bytes bytes, DType dtype);
  NodeIndex kernel(const Operator& op, std::vector<NodeIndex> inputs, Bytes bytes, DType dtype);
  NodeIndex item(NodeIndex tuple, Bytes bytes, DType dtype);

  // --- gradients
  /// What Python hands to backward for a value that the model returned.
  void seed(std::int32_t value, NodeIndex tangent) { gradient_of_value_[static_cast<std::size_t>(value)] = tangent; }
  [[nodiscard]] NodeIndex gradient_of(std::int32_t value) const {
    return gradient_of_value_[static_cast<std::size_t>(value)];
  }
  /// The gradient of an operator's i-th input, which is summed or cast to the input's shape and type: `elements` is how
  /// many it has now.
  void give(const CapturedOperator& op, std::size_t input, NodeIndex gradient, std::int64_t elements, DType dtype);
  /// The same where it has shape and type of the input.
  void give(const CapturedOperator& op, std::size_t input, NodeIndex gradient);

  /// Inner values of an operator's decomposition that its derivative reads.
  [[nodiscard]] std::vector<NodeIndex>& kept(const CapturedOperator& op) {
    return kept_[static_cast<std::size_t>(&op - capture.operators.data())];
  }
  /// What an operator saved that is neither an input of it nor known from elsewhere: further results of it.
  [[nodiscard]] std::vector<std::int32_t> further_results(const CapturedOperator& op) const;
  /// The inputs, and what is saved beside them that was there before: masks, indices.
  [[nodiscard]] std::vector<NodeIndex> operands(const CapturedOperator& op);

  const GraphCapture& capture;
  JointGraph graph;

 private:
  std::vector<NodeIndex> node_of_value_, gradient_of_value_;
  std::vector<std::vector<NodeIndex>> kept_;
};

struct OperatorRule {
  CompileRule rule = CompileRule::kKernel;
  /// Adds the decomposition and names the node of each output.
  void (*forward)(GraphBuilder& b, const CapturedOperator& op);
  /// Gives the inputs their gradients; some output has one.
  void (*backward)(GraphBuilder& b, const CapturedOperator& op);
};

[[nodiscard]] const OperatorRule& rule_of(CompileRule rule);
[[nodiscard]] bool is_kernel(const OperatorRule& rule);

}  // namespace memcalc::compile
