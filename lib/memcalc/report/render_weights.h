// Renders what the headers of weights on disk say: the answer of `memcalc weights`.
// Covered by tests/unit/weights_comparison_test.cc.
#pragma once

#include <string>

#include "memcalc/report/render.h"
#include "memcalc/spec/weights.h"

namespace memcalc {

/// One row an element type, and the total.
[[nodiscard]] std::string render(const Weights& weights, Format format);

}  // namespace memcalc
