// Calibration: a card's rates fitted to timings of single operators, and how well they meet them, as plain values.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "memcalc/spec/device_rates.h"

namespace memcalc {

/// How well one kind of operator is met by the fitted rates, as shares.
struct FitSummary {
  std::string name;
  std::size_t rows = 0;
  double median_error = 0;  // of |predicted / measured - 1|
  double p90_error = 0;
};

struct Calibration {
  DeviceRates rates;
  std::vector<FitSummary> summary;  // in order of first appearance
};

}  // namespace memcalc
