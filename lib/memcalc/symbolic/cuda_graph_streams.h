// The stream on which inductor warms up and records CUDA graphs. Numbered behind the others, as those of FSDP2's roots
// are: no run has both.
#pragma once

#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// What is asked for on it outside of the graphs' private pool, and what comes from that pool.
inline constexpr auto kGraphStream = static_cast<CudaStream>(kStreamCount),
                      kGraphPoolStream = static_cast<CudaStream>(kStreamCount + 1);

}  // namespace memcalc
