// Where cudaMalloc puts a segment. The addresses decide only which of several free blocks of one size the caching
// allocator takes, and by that the peaks (docs/allocator.md, "Where a segment goes").
// Covered by tests/unit/alloc_test.cc and tests/measured/history_replay_test.cc.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/spec/device_spec.h"

namespace memcalc {

/// Gives each segment an address and takes segments back. A value: copies are independent.
class SegmentPlacer {
 public:
  /// Plain descending chunks: for a card whose placement was not measured.
  SegmentPlacer();

  /// The measured behaviour of a card. Addresses are relative to the upper end of the first chunk.
  explicit SegmentPlacer(const SegmentPlacement& placement);

  /// Addresses that were logged, one for each segment in order; for tests.
  [[nodiscard]] static SegmentPlacer from_log(std::span<const Bytes> addresses);

  /// The address of a new segment. Pre: size > 0. Throws Error(kOverflow) below -2^63, Error(kInternal) where a log
  /// has no more addresses.
  [[nodiscard]] Bytes place(Bytes size);

  /// Pre: a segment that place() gave, not given back yet.
  void give_back(Bytes address, Bytes size);

 private:
  struct Span {
    Bytes address = 0;
    Bytes size = 0;
    bool operator==(const Span&) const = default;
  };

  [[nodiscard]] Bytes take_new_chunk(Bytes size);
  void add_fragment(Span fragment);
  void settle();

  // Free parts of chunks, by descending address, unless unsettled_: chunks go downwards, so that new ones come last.
  std::vector<Span> fragments_;
  Bytes largest_ = 0;         // no fragment is larger; most new segments find none
  std::vector<Span> chunks_;  // all chunks that were given out and not taken back
  std::vector<Span> holes_;   // address space outside of chunks, by descending address
  bool unsettled_ = false;    // segments were given back since the last settle()
  Bytes chunk_granularity_ = SegmentPlacement{}.chunk_granularity;
  bool logged_ = false;
  std::size_t next_logged_ = 0;
  std::vector<Bytes> logged_addresses_;
};

}  // namespace memcalc
