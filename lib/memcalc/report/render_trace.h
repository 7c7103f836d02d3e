// Renders the event stream of a run: as TSV in the form of tests/measured/traces, or as JSON in the form of
// torch.cuda.memory._snapshot(), which https://pytorch.org/memory_viz draws once it is pickled.
// Covered by tests/unit/render_trace_test.cc.
#pragma once

#include <cstdint>
#include <string>

#include "memcalc/alloc/replay.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

enum class TraceFormat : std::uint8_t { kTsv, kSnapshot };

struct TraceOptions {
  TraceFormat format = TraceFormat::kTsv;
  bool all_steps = false;  // construction and every step; otherwise the last, steady one
};

/// Pre: `replayed` is the replay of `trace` with record_timeline set; throws Error(kInternal) otherwise.
[[nodiscard]] std::string render_trace(const Trace& trace, const ReplayResult& replayed,
                                       const TraceOptions& options = {});

}  // namespace memcalc
