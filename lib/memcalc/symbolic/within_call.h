// What marks the kernels that no Python of a model precedes (Kernel::node): those that autocast issues inside of
// another operator's call, its conversions, and those of loops around a model (ops/integer.h); those before which other
// Python runs: functional collectives; and a wrapper's own kernels, whose launches its HostWork already holds.
#pragma once

#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

inline constexpr Operator kAutocast{"autocast"};

inline constexpr Operator kAroundModel{"around a model"};

/// What an operator calls in C++: a convolution adds its bias.
inline constexpr Operator kWithinOperator{"within an operator"};

/// A checkpointed region whose saved tensors have no hooks.
inline constexpr Operator kReentrantRegion{"CheckpointFunction"};

/// Of torch/distributed/_functional_collectives.py, where no rate of a wrapper has it (DTensor's Linear).
inline constexpr Operator kFunctionalCollective{"functional collective"};

/// A wrapper's own, whose HostWork was timed with them.
inline constexpr Operator kOfHostWork{"of host work"};

[[nodiscard]] inline bool is_of_host_work(const Kernel& kernel) { return kernel.node == &kOfHostWork; }
[[nodiscard]] inline bool is_around_model(const Kernel& kernel) { return kernel.node == &kAroundModel; }
[[nodiscard]] inline bool is_within_operator(const Kernel& kernel) { return kernel.node == &kWithinOperator; }
[[nodiscard]] inline bool is_of_autocast(const Kernel& kernel) { return kernel.node == &kAutocast; }

}  // namespace memcalc
