// StepCurve: the memory of one step over its allocations and frees, by category; what a picture of it shows.
// Covered by tests/unit/step_curve_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/alloc/replay.h"
#include "memcalc/base/bytes.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// Some events in a row, by the one after which most is allocated.
struct CurvePoint {
  std::array<Bytes, kCategoryCount> bytes{};  // handed out, with rounding and unsplit remainders
  Bytes allocated = 0;                        // their sum
  Bytes reserved = 0;                         // the largest within the point
  std::string operator_chain;                 // that asked, as Report::peak_operator
};

/// Points whose events are of one phase; the last one may hold the first events of the next.
struct CurvePhase {
  Phase phase = Phase::kForward;
  std::size_t first = 0;
  std::size_t last = 0;
};

struct StepCurve {
  int step = 0;           // the last of the run
  std::int64_t rank = 0;  // of several GPUs
  std::size_t events = 0;
  std::vector<CurvePoint> points;  // in order, with about as many events each
  std::size_t peak = 0;            // the point of the largest allocated
  std::vector<CurvePhase> phases;  // in order
};

/// The last step of a run in at most `most_points`. Pre: `replayed` is the replay of `trace` with record_timeline set;
/// throws Error(kInternal) otherwise.
[[nodiscard]] StepCurve step_curve(const Trace& trace, const ReplayResult& replayed, std::size_t most_points);

/// {"step", "rank", "events", "peak", "phases": [{"name", "first", "last"}], "categories": {"weights": [bytes a
/// point]}, "reserved_bytes": […], "operators": [names], "operator": [places in them, a point]}.
[[nodiscard]] std::string render_json(const StepCurve& curve);

}  // namespace memcalc
