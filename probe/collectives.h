// Collectives between the cards of this host, where there are more than one and NCCL is at hand.
#pragma once

#include <string>

namespace memcalc::probe {

/// Timings as lines of JSON ({"kind": "collective", "op": …, "world": …, "bytes": …, "ms": …}); empty with one card or
/// without libnccl.so.2, which is loaded at run time.
[[nodiscard]] std::string measure_collectives();

}  // namespace memcalc::probe
