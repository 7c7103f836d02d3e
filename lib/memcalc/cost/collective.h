// The time of collectives and copies: what crosses the slowest link, and the steps that it takes.
// Covered by tests/unit/cost_test.cc.
#pragma once

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// Seconds of a collective of kernel.group_size ranks within a host, as NCCL's rings take them: a rank sends
/// (n - 1) / n of the bytes, twice for an all-reduce.
[[nodiscard]] double collective_seconds(const Kernel& kernel, const DeviceSpec& device, const LinkRates& rates);

/// Who waits for a collective that runs beside the compute stream: what is gathered is needed by the next kernel, what
/// is reduced by the optimizer.
[[nodiscard]] bool is_needed_at_once(const Kernel& kernel);

/// Runs on a stream of its own: FSDP's, and DDP's buckets, which NCCL's process group puts on one.
[[nodiscard]] bool runs_beside(const Kernel& kernel);

}  // namespace memcalc
