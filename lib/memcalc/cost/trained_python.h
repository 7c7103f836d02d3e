// How much Python a layer of a family runs in forward of a training step. Covered by tests/unit/trained_python_test.cc.
#pragma once

#include <string_view>

#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// Bytecode instructions for each operator that the layer calls. Of a family that was not counted in training those of
/// a call (`of_call`), or the median of all where there are none (0), as of a program, whose Python nobody counted.
[[nodiscard]] double instructions_per_trained_operator(std::string_view model_type, double of_call);

/// The same of a run whose layers may have peft's adapters: peft's code runs instructions of its own for each module,
/// in the place of the family's for the operators of adapters.
[[nodiscard]] double instructions_with_adapters(double of_family, const KernelList& kernels, const RunSpec& run);

}  // namespace memcalc
