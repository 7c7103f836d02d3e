// memcalc-probe measure: one card's memory and rates in under a minute.
#pragma once

#include <string>

namespace memcalc::probe {

struct MeasureOptions {
  double budget_seconds = 50;
  std::string rows_path;    // the timings as JSON lines; empty: not kept
  std::string output_path;  // the device file; empty: standard output
  std::string specs;        // memcalc's specs folder
};

/// Measures card 0 and writes a device file that `memcalc --gpu FILE` takes. Returns the exit status.
int measure(const MeasureOptions& options);

}  // namespace memcalc::probe
