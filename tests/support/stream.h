// Streams of allocations and frees, recorded and predicted, in one form so that they can be compared event by event.
//
// Recorded are histories (tests/measured/allocator, tests/measured/histories: requested bytes from model construction
// on) and traces (tests/measured/traces: block bytes of one steady step). The predicted ones come from a symbolic run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/alloc/replay.h"
#include "memcalc/base/bytes.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/trace.h"
#include "support/measured_row.h"

namespace memcalc::measured {

/// Two events are the same if all but the label and the flag are.
struct StreamEvent {
  bool is_free = false;
  Phase phase = Phase::kBuild;
  std::int16_t step = 0;  // 0, 1, 2; of the model's construction too
  Bytes bytes = 0;
  std::string label;           // the operator, the Python frame: for people
  bool autocast_exit = false;  // recorded, a free: autocast's cache of weights is being emptied
};

[[nodiscard]] bool same(const StreamEvent& a, const StreamEvent& b);

using Stream = std::vector<StreamEvent>;

struct RecordedHistory {
  MeasuredRow of;
  Phase delete_is = Phase::kDelete;  // the phase in which the recorder counts the death of the loss
  std::int16_t last_step = 0;        // that was recorded
  Stream events;
};

/// `path` is relative to tests/measured. Of a bare loop everything from the model's construction; of the Trainer what
/// follows the construction, since that one holds a batch of the measuring script. Of the steps 0, 1 and `third_step`,
/// which is 3 where the Trainer's shuffling gave step 2 a batch without padding.
[[nodiscard]] RecordedHistory read_history_stream(const std::string& path, std::int16_t third_step = 2);

/// The requests of `trace` from the same point on.
[[nodiscard]] Stream requests_of(const Trace& trace, const RecordedHistory& like);

/// tests/measured/traces/ID.trace.tsv: forward, backward, del, optimizer, zero. `amp`: recorded under autocast.
[[nodiscard]] Stream read_trace_stream(const std::string& id, bool amp);

/// The blocks of the last step in the order of a trace: zero_grad last; of several micro-batches the first.
/// Pre: `replayed` is the replay of `trace` with record_timeline set.
[[nodiscard]] Stream steady_blocks_of(const Trace& trace, const ReplayResult& replayed);

/// What autocast's cache held is freed in the order of a hash table whose keys are addresses
/// (aten/src/ATen/autocast_mode.cpp, cached_casts), so it differs from run to run. This sorts by size each maximal run
/// of frees of `recorded` that has such a free in it, and the run of `predicted` at the same place; nothing else.
void sort_autocast_exits(Stream& recorded, Stream& predicted);

struct Comparison {
  std::size_t events = 0;        // of the longer stream
  std::size_t matching = 0;      // of a longest common subsequence
  std::string first_difference;  // with both operators and some events around; empty where the streams are equal

  [[nodiscard]] bool equal() const { return first_difference.empty(); }
  [[nodiscard]] double share() const;
};

[[nodiscard]] Comparison compare(const Stream& recorded, const Stream& predicted);

}  // namespace memcalc::measured
