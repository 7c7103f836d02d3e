// What marks the kernels that the code of a compiled graph issues (Kernel::node): no operator is dispatched for them,
// no autograd node of their own is evaluated, and no Python of a model runs between them.
#pragma once

#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

inline constexpr Operator kCompiledCode{"CompiledFunction"};

/// Its kernels that Triton compiles, of kind kVectorized: `elements` counts the instructions of all their lanes.
inline constexpr Operator kFusedPointwise{"triton_poi_fused"}, kFusedReduction{"triton_red_fused"};
/// One that sums rows, and columns beside them (MixOrderReduction).
inline constexpr Operator kFusedBothWays{"triton_per_fused"};

/// A call of such a graph, before its kernels: guards, AOTAutograd's wrappers, and `elements` tensors that it is given
/// or returns. Of kind kPartOfPrevious: the host's work alone.
inline constexpr Operator kCompiledCall{"compiled graph: call"};

/// The same of what a CUDA graph holds: the host launches the graph alone, once for each call.
inline constexpr Operator kReplayedCode{"CUDAGraph"};

[[nodiscard]] inline bool is_replayed(const Kernel& kernel) { return kernel.node == &kReplayedCode; }
[[nodiscard]] inline bool is_fused(const Kernel& kernel) {
  return kernel.kind == KernelKind::kVectorized &&
         (kernel.op == &kFusedPointwise || kernel.op == &kFusedReduction || kernel.op == &kFusedBothWays);
}
[[nodiscard]] inline bool is_of_compiled_code(const Kernel& kernel) {
  return kernel.node == &kCompiledCode || is_replayed(kernel);
}

}  // namespace memcalc
