// What marks the kernels that no Python of a model precedes (Kernel::node): those that autocast issues inside of
// another operator's call, its conversions, and those of loops around a model (ops/integer.h); and those before which
// other Python runs: an adapter's, functional collectives.
#pragma once

#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

inline constexpr Operator kAutocast{"autocast"};

inline constexpr Operator kAroundModel{"around a model"};

/// Of an adapter's module, which is warm code of its own (models/fine_tuned_linear.cc).
inline constexpr Operator kAdapter{"adapter"};
/// The one of them with which the module's own Python is told.
inline constexpr Operator kAdapterModule{"adapter: module"};

/// A checkpointed region whose saved tensors have no hooks.
inline constexpr Operator kReentrantRegion{"CheckpointFunction"};

/// Of torch/distributed/_functional_collectives.py, where no rate of a wrapper has it (DTensor's Linear).
inline constexpr Operator kFunctionalCollective{"functional collective"};

[[nodiscard]] inline bool is_of_adapter(const Kernel& kernel) {
  return kernel.node == &kAdapter || kernel.node == &kAdapterModule;
}
[[nodiscard]] inline bool is_around_model(const Kernel& kernel) { return kernel.node == &kAroundModel; }
[[nodiscard]] inline bool is_of_autocast(const Kernel& kernel) { return kernel.node == &kAutocast; }

}  // namespace memcalc
