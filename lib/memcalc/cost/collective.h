// The time of collectives and copies: what crosses the slowest link, and the steps that it takes.
// Covered by tests/unit/collective_test.cc and tests/unit/cost_test.cc.
#pragma once

#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/kernel_list.h"

namespace memcalc {

/// Seconds of a collective, as NCCL's rings take them: a rank sends (n - 1) / n of the bytes, twice for an all-reduce,
/// to its neighbour in the host or, where the group spans hosts, at the rate at which the adapters of its members in
/// one host send together. Ranks are numbered host by host. Pre: the card's link or PCIe rate is known.
[[nodiscard]] double collective_seconds(const work::Communication& communication, const DeviceSpec& device,
                                        const LinkRates& rates);

/// Whether some of it goes over NVLink.
[[nodiscard]] bool uses_links(const work::Communication& communication, const DeviceSpec& device,
                              const LinkRates& rates);

/// Who waits for a collective that runs beside the compute stream: what is gathered is needed by the next kernel, what
/// is reduced by the optimizer.
[[nodiscard]] bool is_needed_at_once(const Kernel& kernel);

/// Seconds of a copy between host and card, kernel.bytes long.
[[nodiscard]] double copy_seconds(const Kernel& kernel, const TransferRates& rates);

/// Runs on a stream of its own: FSDP's, and DDP's buckets, which NCCL's process group puts on one.
[[nodiscard]] bool runs_beside(const Kernel& kernel);

/// What a kernel loses beside a collective, and a collective beside kernels, as a share of its time.
[[nodiscard]] double contention_of(const Kernel& kernel, const LinkRates& rates);

}  // namespace memcalc
