#include "memcalc/alloc/warm_up.h"

#include <algorithm>

namespace memcalc {

Bytes warm_up_bytes(Bytes bytes, Bytes unused) {
  constexpr Bytes kLeftAlone = 3 * (Bytes{1} << 29U);  // 1.5 GiB
  if (bytes - unused > unused) return bytes - unused;
  return bytes - unused > kLeftAlone ? unused + 1 : 0;
}

void settle_warm_up(Trace& trace, BlockId request, const ReplayOptions& options) {
  const auto made = std::find_if(trace.events.begin(), trace.events.end(), [&](const Event& event) {
    return event.kind == EventKind::kAllocate && event.block == request;
  });
  Trace before{.blocks = trace.blocks};
  before.events.assign(trace.events.begin(), made);
  const ReplayResult memory = replay(before, options);
  Bytes& requested = trace.blocks[static_cast<std::size_t>(request)].requested;
  const Bytes wanted = warm_up_bytes(requested, memory.reserved_at_end - memory.allocated_at_end);
  constexpr Bytes kNothing = 512;
  requested = wanted > 0 ? wanted / 2 * 2 : kNothing;  // of float16
}

}  // namespace memcalc
