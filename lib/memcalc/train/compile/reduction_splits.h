// How inductor divides a reduction that has too few results to fill the card: a first kernel sums parts, a second one
// these sums; and when a kernel over rows takes sums over columns along.
// Covered by tests/unit/compile_test.cc.
// MIRRORS(torch, "_inductor/choices.py", "2.11.0")
// MIRRORS(torch, "_inductor/codegen/simd.py", "2.11.0")
// MIRRORS(torch, "_inductor/ir.py", "2.11.0")
// MIRRORS(torch, "_inductor/scheduler.py", "2.11.0")
#pragma once

#include <cstdint>

namespace memcalc::compile {

/// Parts in which each of `results` sums of `reduced` elements is taken; 1: one kernel does all of it. `across_rows`:
/// the elements of a sum do not lie side by side.
[[nodiscard]] std::int64_t parts_of_reduction(std::int64_t reduced, std::int64_t results, bool across_rows,
                                              std::int64_t multiprocessors);

/// Whether the kernel that reduces each of `rows` rows sums the columns of what it reads, too (MixOrderReduction).
[[nodiscard]] bool takes_columns_along(std::int64_t rows, std::int64_t columns);

/// Rows of the workspace into which it then sums: Python's sum(dim=0) of them follows.
[[nodiscard]] std::int64_t workspace_rows(std::int64_t rows, std::int64_t multiprocessors);

}  // namespace memcalc::compile
