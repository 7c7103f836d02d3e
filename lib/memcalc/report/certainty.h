// Certainty: how well runs of a kind were predicted where they were measured. Covered by tests/unit/verdict_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "memcalc/report/report.h"

namespace memcalc {

struct Certainty {
  std::string_view kind;  // of run: "text", "compiled" (specs/prediction_errors.json)
  std::int64_t runs = 0;  // of this kind that were measured
  double share = 0;       // of reserved memory within which 9 of 10 of them were predicted; 0: to the byte
};

/// Nothing where the specs have no such table.
[[nodiscard]] std::optional<Certainty> certainty_of(const Report& report);

}  // namespace memcalc
