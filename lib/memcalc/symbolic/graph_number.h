// The graphs that torch.compile makes of a model where Dynamo breaks it, as regions: their numbers are below
// RegionCompiler::kLoss, and tell which function of Python each is a call of. Covered by
// tests/unit/compile_programs_test.cc.
#pragma once

#include <cstdint>

namespace memcalc {

inline constexpr std::int64_t kMostGraphsOfPass = 1 << 20;

/// `code` from 1 on; `index`: of the graphs of one pass.
[[nodiscard]] constexpr std::int64_t graph_number(std::int64_t code, std::int64_t index) {
  return -(code * kMostGraphsOfPass + index);
}

/// Layers are calls of one function: 0.
[[nodiscard]] constexpr std::int64_t code_of_region(std::int64_t number) {
  return number < 0 ? -number / kMostGraphsOfPass : 0;
}

}  // namespace memcalc
