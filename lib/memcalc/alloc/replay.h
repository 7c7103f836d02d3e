// Replays a Trace on PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp; the rules and their check
// against 170,000 logged events are in docs/allocator.md) and beside it on an exact allocator, the lower bound.
// Covered by tests/unit/alloc_test.cc and tests/measured/history_replay_test.cc.
// MIRRORS(torch, "c10/cuda/CUDACachingAllocator.cpp", "2.11.0")
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/spec/device_spec.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// State after one event; index i belongs to Trace::events[i].
struct TimelinePoint {
  Bytes allocated = 0;
  Bytes reserved = 0;
  Bytes block_bytes = 0;  // size of the block handed out or returned (0 for empty_cache)
};

/// A step as it ended.
struct StepMark {
  Bytes peak_allocated = 0;  // within the step
  Bytes reserved = 0;
  std::int64_t retries = 0;  // until then
};

struct ReplayOptions {
  const SegmentPlacement* placement = nullptr;  // null: plain descending chunks
  bool expandable_segments = false;             // then no placement matters
  bool record_timeline = false;
  bool mark_steps = false;
  bool peaks_of_steps_alone = false;  // what the model's construction takes for a while is no peak
  // Nor is it beside `peaks_of_steps_alone`, but what it leaves reserved is, until the Trainer empties the cache
  // (accelerate's free_memory, when training begins).
  bool reserves_from_construction = false;
  std::optional<Bytes> capacity;             // what the driver has for segments; not with expandable segments
  std::optional<CudaStream> private_stream;  // its blocks are of a CUDA graph's pool
  std::size_t peaks_from = 0;  // the first event whose peaks count: torch.cuda.reset_peak_memory_stats() before it
};

struct ReplayResult {
  Bytes peak_allocated = 0;    // torch.cuda.max_memory_allocated
  Bytes peak_reserved = 0;     // torch.cuda.max_memory_reserved
  Bytes exact_peak = 0;        // the largest sum of requested bytes: no allocator can do with less
  std::size_t peak_event = 0;  // index into Trace::events at which peak_allocated is first reached
  std::size_t exact_peak_event = 0;
  Bytes reserved_at_peak = 0;                              // reserved when peak_allocated is reached
  std::array<Bytes, kCategoryCount> categories_at_peak{};  // requested bytes by category at peak_event
  Bytes slack_at_peak = 0;  // peak_allocated - sum of categories_at_peak: rounding and unsplit remainders
  std::array<Bytes, kPhaseCount> phase_peaks{};     // largest allocated within each phase, all steps
  std::array<Bytes, kPhaseCount> phase_reserved{};  // largest reserved, likewise
  Bytes allocated_at_end = 0;
  Bytes reserved_at_end = 0;
  std::size_t segments_at_peak = 0;     // cudaMalloc'd segments when peak_reserved is reached
  std::int64_t retries = 0;             // torch's num_alloc_retries: free segments given back since no room was left
  bool out_of_memory = false;           // no room even so; from there on as if there were
  std::vector<StepMark> steps;          // filled if asked for
  std::vector<TimelinePoint> timeline;  // likewise
};

/// Pre: every block is allocated before it is freed, and freed at most once.
/// Throws Error(kInternal) on a trace that breaks this, Error(kOverflow) where sums leave 63 bits.
[[nodiscard]] ReplayResult replay(const Trace& trace, const ReplayOptions& options = {});

}  // namespace memcalc
