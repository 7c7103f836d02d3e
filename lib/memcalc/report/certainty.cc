#include "memcalc/report/certainty.h"

#include <cstddef>

#include "memcalc/spec/prediction_errors.h"

namespace memcalc {

std::optional<Certainty> certainty_of(const Report& report) {
  if (report.device.errors == nullptr) return std::nullopt;
  const auto kind = static_cast<std::size_t>(kind_of(report.model, report.run));
  const PredictionErrors& errors = *report.device.errors;
  return Certainty{.kind = kRunKindNames[kind], .runs = errors.runs[kind], .share = errors.shares[kind]};
}

}  // namespace memcalc
