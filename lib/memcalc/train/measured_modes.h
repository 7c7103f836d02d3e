// Which choices of a run were compared with recorded runs of the frameworks (tests/measured), optimizers aside, whose
// rules say it themselves. A test over those records says whether the table is right: measured_modes_test.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// A way to fine-tune, to save memory or to infer.
struct Mode {
  std::string_view name;
  bool (*is_taken)(const RunSpec& run);
  bool is_measured;
};

[[nodiscard]] std::span<const Mode> modes();

/// The names of those that a run takes and no record is of.
[[nodiscard]] std::vector<std::string_view> unmeasured_modes(const RunSpec& run);

}  // namespace memcalc
