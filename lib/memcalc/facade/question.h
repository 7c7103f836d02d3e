// Internal to the facade: a question's parts of an estimate. Covered by tests/unit/estimate_test.cc.
#pragma once

#include "memcalc/report/report.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/run_request.h"

namespace memcalc {

/// The card, at the host that was named. Throws Error(kUsage) where no host decides its step.
[[nodiscard]] DeviceSpec with_named_host(const Question& question);

/// The report of the question's run with what is assumed of it and what it says of the data, the host and the whole
/// training.
[[nodiscard]] Report with_answers(Report report, const Question& question);

}  // namespace memcalc
