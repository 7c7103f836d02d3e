// PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp) with its default options, without the memory: blocks,
// two pools for each stream, segments. docs/allocator.md states the rules and what is left out.
// Covered by tests/unit/alloc_test.cc (each rule; agreement with a simple reference on random traces) and
// tests/measured/history_replay_test.cc (every address of 13 logged runs).
// MIRRORS(torch, "c10/cuda/CUDACachingAllocator.cpp", "2.11.0")
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "memcalc/alloc/free_list.h"
#include "memcalc/alloc/segment_placement.h"
#include "memcalc/base/bytes.h"
#include "memcalc/base/kept_vector.h"

namespace memcalc {

/// The allocator's constants, as PyTorch names and sets them.
inline constexpr Bytes kMinBlockSize = 512;         // every size is a multiple of it
inline constexpr Bytes kSmallSize = kMiB;           // the largest request of the small pool
inline constexpr Bytes kSmallBuffer = 2 * kMiB;     // segment of the small pool
inline constexpr Bytes kLargeBuffer = 20 * kMiB;    // segment of the large pool for requests under kMinLargeAlloc
inline constexpr Bytes kMinLargeAlloc = 10 * kMiB;  // from here on a segment of their own …
inline constexpr Bytes kRoundLarge = 2 * kMiB;      // … rounded up to this

class CachingAllocator {
 public:
  using Handle = FreeList::Handle;

  static constexpr std::size_t kNoStream = std::numeric_limits<std::size_t>::max();

  /// `capacity`: bytes that the driver has for segments; none where it never runs out. `private_stream`: all of its
  /// pools are those of a CUDA graph, whose segments never go back to the driver.
  explicit CachingAllocator(SegmentPlacer placer = {}, Bytes capacity = std::numeric_limits<Bytes>::max(),
                            std::size_t private_stream = kNoStream);

  /// A block of at least `requested` bytes. Nothing for 0 bytes, as in PyTorch: a handle of a block of size 0.
  /// Throws Error(kOverflow) where the segments' sum leaves 63 bits, Error(kInternal) for a negative size.
  /// A stream's requests are met from its own pools.
  [[nodiscard]] Handle allocate(Bytes requested, std::size_t stream = 0);

  /// Pre: a handle that allocate() gave, not freed yet.
  void free(Handle block);
  /// The same for a block that other streams still use: it counts as free, but stays out of the pool until finish().
  void free_later(Handle block);
  void finish(Handle block);

  /// Returns every segment that is wholly free to the driver.
  void empty_cache();

  [[nodiscard]] Bytes allocated() const { return allocated_; }  // torch.cuda.memory_allocated
  [[nodiscard]] Bytes reserved() const { return reserved_; }    // torch.cuda.memory_reserved
  [[nodiscard]] std::size_t segments() const { return segments_; }

  /// How often the driver had no room and every free segment went back to it: num_alloc_retries of torch.
  [[nodiscard]] std::int64_t retries() const { return retries_; }

  /// Whether the driver had no room after that either: torch.cuda.OutOfMemoryError. The allocator goes on as if it had.
  [[nodiscard]] bool out_of_memory() const { return out_of_memory_; }

  /// Pre: as for free().
  [[nodiscard]] Bytes size_of(Handle block) const { return blocks_[block].size; }
  [[nodiscard]] Bytes address_of(Handle block) const { return blocks_[block].address; }

 private:
  // The block of every request of 0 bytes, and the neighbour of the first and the last block of a segment. It is
  // never free, so that merging stops there, and what is written to its links is never read.
  static constexpr Handle kEmptyBlock = FreeList::kNone;

  struct Block {
    Bytes address = 0;
    Bytes size = 0;
    Handle previous = kEmptyBlock;  // neighbours in the segment, by address
    Handle next = kEmptyBlock;      // in a record of no block: the next record to recycle
    bool is_free = false;
    bool is_small = false;  // of the small pool
    std::uint8_t stream = 0;
  };

  [[nodiscard]] Handle new_record();
  void recycle(Handle record);
  [[nodiscard]] Handle new_segment(Bytes size, bool is_small, std::size_t stream);
  [[nodiscard]] FreeList& pool_of(const Block& block) { return pools_[block.stream][block.is_small]; }
  void return_free_segments(FreeList& pool);
  void make_room_for(Bytes segment);
  [[nodiscard]] Handle carve_front(Handle block, Bytes size);

  KeptVector<Block> blocks_;  // blocks_[kEmptyBlock] is the empty one
  Handle recycled_ = kEmptyBlock;
  std::vector<std::array<FreeList, 2>> pools_;  // [stream][is_small]; of streams that have asked for memory
  Bytes allocated_ = 0;
  Bytes reserved_ = 0;
  std::size_t segments_ = 0;
  Bytes capacity_;
  std::size_t private_stream_;
  std::int64_t retries_ = 0;
  bool out_of_memory_ = false;
  SegmentPlacer placer_;
};

}  // namespace memcalc
