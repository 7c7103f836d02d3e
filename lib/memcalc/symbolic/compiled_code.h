// What marks the kernels that the code of a compiled graph issues (Kernel::node): no operator is dispatched for them,
// no autograd node of their own is evaluated, and no Python of a model runs between them.
#pragma once

#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

inline constexpr Operator kCompiledCode{"CompiledFunction"};

/// A call of such a graph, before its kernels: guards, AOTAutograd's wrappers, and `elements` tensors that it is given
/// or returns. Of kind kPartOfPrevious: the host's work alone.
inline constexpr Operator kCompiledCall{"compiled graph: call"};

[[nodiscard]] inline bool is_of_compiled_code(const Kernel& kernel) { return kernel.node == &kCompiledCode; }

}  // namespace memcalc
