// transformers 5.17, modeling_utils.py, caching_allocator_warmup: before weights are read onto the card, one request
// for all of them, less what the process has reserved and does not use. Covered by tests/unit/warm_up_test.cc.
// MIRRORS(transformers, "modeling_utils.py", "5.17.0")
#pragma once

#include "memcalc/alloc/replay.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// What is asked for, of `bytes` of weights, where so much is reserved and not allocated. 0: nothing.
[[nodiscard]] Bytes warm_up_bytes(Bytes bytes, Bytes unused);

/// `request`: a block of the trace that is made and freed at once, of all weights. It becomes as large as what the
/// allocator has left then makes it; where nothing is asked for, 512 bytes.
void settle_warm_up(Trace& trace, BlockId request, const ReplayOptions& options);

}  // namespace memcalc
