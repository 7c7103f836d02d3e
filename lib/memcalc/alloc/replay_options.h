// How the allocator of a run is set up. Covered by tests/unit/estimate_test.cc.
#pragma once

#include <cstddef>

#include "memcalc/alloc/replay.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// `measured_from`: the event from which peaks count. `device` outlives what is returned.
[[nodiscard]] ReplayOptions replay_options(const RunSpec& run, const DeviceSpec& device, std::size_t measured_from,
                                           bool record_timeline = false);

}  // namespace memcalc
