// Reads tests/measured/allocator/*.history.tsv.gz: everything that PyTorch's caching allocator logged from the
// construction of a model through three training steps (tests/measured/allocator/README.md says how they were made).
// Used by the tests that replay these requests and by those that compare memcalc's own requests with them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc::measured {

/// One thing that the run asked of the allocator, in order.
struct Request {
  EventKind kind = EventKind::kAllocate;
  Phase phase = Phase::kBuild;
  std::int16_t step = -1;   // 0, 1, 2; -1 while the model is built
  std::int32_t block = -1;  // counts the allocations from 0; a free carries the number of its allocation
  Bytes requested = 0;      // bytes asked for, at the allocation and at its free; 0 for kEmptyCache
  Bytes address = 0;        // logged, relative to the lowest address of the file
};

/// The recorder's reading at the end of a phase.
struct Mark {
  std::string name;  // "built model and batch", "empty_cache", "step 0 forward", …
  std::int16_t step = -1;
  Phase phase = Phase::kBuild;
  std::size_t requests = 0;  // how many of History::requests came before
  Bytes allocated = 0;
  Bytes reserved = 0;
  Bytes max_allocated = 0;  // since the start of the process
};

/// A segment that cudaMalloc gave.
struct Segment {
  Bytes address = 0;
  Bytes size = 0;
};

struct History {
  std::string id;           // "bert-large-2l-fp32"
  std::string recorded_id;  // as the recorder wrote it
  Bytes peak_allocated = 0;
  Bytes peak_reserved = 0;
  std::int32_t block_count = 0;
  std::vector<Mark> marks;
  std::vector<Request> requests;
  std::vector<Segment> segments;  // in the order of the cudaMallocs
};

/// tests/measured/allocator of the source tree.
[[nodiscard]] std::string history_directory();

/// The names of all histories, sorted: "bert-large-2l-fp32", …
[[nodiscard]] std::vector<std::string> history_ids();

/// Throws Error(kInput), with the line, on a file that is not a history.
[[nodiscard]] History read_history(const std::string& id);

/// The requests as a Trace (every block is kTemporaries: the log does not know what a block was for).
[[nodiscard]] Trace trace_of(const History& history);

/// The logged addresses of the segments, for SegmentPlacer.
[[nodiscard]] std::vector<Bytes> segment_addresses_of(const History& history);

}  // namespace memcalc::measured
