// memcalc check: predictions beside measured rows.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/report/answer.h"
#include "memcalc/spec/registry.h"

namespace memcalc {

/// What was measured, or predicted, of one run.
struct CheckedFigures {
  std::optional<Bytes> peak_allocated;
  std::optional<Bytes> peak_reserved;
  std::optional<double> step_seconds;
};

struct CheckedRow {
  std::string id;
  std::string refused;  // why there is no prediction; empty where there is one
  CheckedFigures measured;
  CheckedFigures predicted;
  std::string kind;         // of run: "text", "compiled" (spec/prediction_errors.h)
  bool host_bound = false;  // the predicted step waits for the host
};

/// Relative errors that are still accepted; 0: not looked at.
struct CheckTolerance {
  double allocated = 0.01;
  double reserved = 0.01;
  double step = 0.15;
  double share = 0.9;  // of the rows that must be within all of them
};

/// Measured rows (JSON lines, plan/measured_row.h). Of each line without "error" the model is looked up in `models`
/// (tests/measured/models.json: name, task, config) or, where that text is empty or does not know it, in the registry.
/// A run that memcalc does not model becomes a refused row. Of several ranks the row's own "rank" is compared. Throws
/// Error(kInput) for a line that is no row.
[[nodiscard]] std::vector<CheckedRow> check_rows(const SpecRegistry& registry, const std::string& rows,
                                                 const std::string& name, const std::string& models);

/// The table and its summary; positive where enough rows are within the tolerance.
[[nodiscard]] Answer answer_of(const std::vector<CheckedRow>& rows, const CheckTolerance& tolerance);

}  // namespace memcalc
