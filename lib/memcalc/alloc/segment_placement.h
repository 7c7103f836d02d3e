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
  SegmentPlacer() = default;

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
  struct Fragment {
    Bytes size = 0;
    Bytes address = 0;
    auto operator<=>(const Fragment&) const = default;  // best fit: by size, then by address
  };

  [[nodiscard]] Bytes take_new_chunk(Bytes size);
  void add_fragment(Fragment fragment);
  void join_fragments();

  std::vector<Fragment> fragments_;  // sorted, unless unjoined_
  bool unjoined_ = false;            // fragments were given back since the last join
  Bytes lowest_ = 0;                 // low end of the lowest chunk
  Bytes chunk_granularity_ = SegmentPlacement{}.chunk_granularity;
  Bytes span_begin_ = 0;             // taken by the context; empty where begin == end
  Bytes span_end_ = 0;
  bool logged_ = false;
  std::size_t next_logged_ = 0;
  std::vector<Bytes> logged_addresses_;
};

}  // namespace memcalc
