// How much Python a layer of a family runs in forward of a training step. Covered by tests/unit/trained_python_test.cc.
#pragma once

#include <cstdint>
#include <string_view>

#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// Bytecode instructions for each operator that the layer calls. Of a family that was not counted in training those of
/// a call (`of_call`), or the median of all where there are none (0).
[[nodiscard]] double instructions_per_trained_operator(std::string_view model_type, double of_call);

/// The same of a model whose layers have peft's adapters of `rank`, whose own code runs `kInstructionsOfAdapter` for
/// each module in the place of the family's for their operators. `converts`: into the adapters' type and back.
[[nodiscard]] double instructions_with_adapters(double of_family, const KernelList& kernels, std::int64_t rank,
                                                bool converts);

}  // namespace memcalc
