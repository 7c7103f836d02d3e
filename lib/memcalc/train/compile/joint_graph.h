// From the operators of a captured forward pass to the joint graph: each is decomposed as torch._decomp does, and its
// derivative is traced behind it (joint_graph.cc: the rules; one function an operator).
#pragma once

#include <span>

#include "memcalc/symbolic/capture.h"
#include "memcalc/train/compile/graph.h"

namespace memcalc::compile {

/// `outputs`: the captured values that the model returns, of which each differentiable one gets a tangent.
[[nodiscard]] JointGraph build_joint_graph(const GraphCapture& capture, std::span<const std::int32_t> outputs);

}  // namespace memcalc::compile
