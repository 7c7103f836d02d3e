// How much Python a layer of a family runs in forward of a training step. Covered by tests/unit/trained_python_test.cc.
#pragma once

#include <string_view>

namespace memcalc {

/// Bytecode instructions for each operator that the layer calls; 0: not counted.
[[nodiscard]] double instructions_per_trained_operator(std::string_view model_type);

}  // namespace memcalc
