// What the ranks of a run hold of each parameter. Neighbours that hold the same are one row: most ranks of a large job
// are alike, and a row for each would take more memory than the rest of the estimate. Covered by
// tests/unit/parallel_test.cc.
#pragma once

#include <cstdint>
#include <vector>

namespace memcalc {

/// The same on `count` ranks one after the other.
struct Holding {
  std::vector<std::int64_t> elements;  // of each parameter, padding left out
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// `elements`: of the rank after the last one.
inline void add_rank(std::vector<Holding>& holdings, const std::vector<std::int64_t>& elements) {
  if (holdings.empty() || holdings.back().elements != elements) {
    const std::int64_t first = holdings.empty() ? 0 : holdings.back().first + holdings.back().count;
    holdings.push_back({.elements = elements, .first = first});
  }
  ++holdings.back().count;
}

}  // namespace memcalc
