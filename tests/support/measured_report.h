// What the tests of measured rows ask of a report.
#pragma once

#include <cmath>
#include <numeric>

#include "memcalc/report/report.h"

namespace memcalc::measured {

/// Relative, without its sign.
inline double error_of(Bytes predicted, Bytes measured) {
  return std::abs(static_cast<double>(predicted) / static_cast<double>(measured) - 1);
}

/// The categories at the peak and the allocator's slack: the peak, if the report is right.
inline Bytes sum_of_categories(const Report& report) {
  const auto& categories = report.memory.categories_at_peak;
  return std::accumulate(categories.begin(), categories.end(), report.memory.slack_at_peak);
}

}  // namespace memcalc::measured
