// What a step time means: samples and tokens a second, utilisation, energy.
// Covered by tests/unit/throughput_test.cc.
#pragma once

#include "memcalc/report/report.h"

namespace memcalc {

[[nodiscard]] Throughput throughput_of(const RunSpec& run, const DeviceSpec& device, const StepTime& step);

/// Sequences or images that one optimizer step of all ranks takes in.
[[nodiscard]] double samples_per_step(const RunSpec& run);

/// Tokens in them: of both sequences where there are two; 0 for images.
[[nodiscard]] double tokens_per_step(const RunSpec& run);

}  // namespace memcalc
