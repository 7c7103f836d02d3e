// PyTorch's caching allocator with expandable_segments:True (c10/cuda/CUDACachingAllocator.cpp, ExpandableSegment): one
// range of addresses for each pool of each stream, of which pages are mapped as they are needed and unmapped by
// empty_cache. With the interface of CachingAllocator. docs/allocator.md states the rules. Covered by
// tests/unit/expandable_allocator_test.cc.
// MIRRORS(torch, "c10/cuda/CUDACachingAllocator.cpp", "2.11.0")
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "memcalc/base/bytes.h"

namespace memcalc {

class ExpandableAllocator {
 public:
  using Handle = std::uint32_t;

  ExpandableAllocator();

  /// As CachingAllocator: nothing for 0 bytes, Error(kOverflow) where the pages' sum leaves 63 bits.
  [[nodiscard]] Handle allocate(Bytes requested, std::size_t stream = 0);
  /// Pre: a handle that allocate() gave, not freed yet.
  void free(Handle block);
  /// As CachingAllocator.
  void free_later(Handle block);
  void finish(Handle block);
  /// Unmaps every page that holds no block.
  void empty_cache();

  [[nodiscard]] Bytes allocated() const { return allocated_; }
  [[nodiscard]] Bytes reserved() const { return reserved_; }
  /// Pools that have pages; PyTorch itself counts no segment here.
  [[nodiscard]] std::size_t segments() const;
  [[nodiscard]] Bytes size_of(Handle block) const { return blocks_[block].size; }
  [[nodiscard]] Bytes address_of(Handle block) const { return blocks_[block].address; }

 private:
  static constexpr Handle kNone = 0;  // the block of every request of 0 bytes, and no neighbour

  enum class State : std::uint8_t { kUsed, kFree, kUnmapped };
  struct Block {
    Bytes address = 0;
    Bytes size = 0;
    Handle previous = kNone;  // neighbours by address
    Handle next = kNone;      // of a record of no block: the next one to recycle
    State state = State::kUsed;
    bool is_small = false;
    std::uint8_t stream = 0;
  };
  /// A block's place among the free ones: by size, then by address.
  struct Place {
    Bytes size;
    Bytes address;
    Handle block;
    auto operator<=>(const Place&) const = default;
  };
  struct Pool {
    std::set<Place> free;
    std::set<Place> unmapped;  // their sizes count as 0 here: by address
    Handle first = kNone;      // the block at the lowest address
  };

  [[nodiscard]] Handle new_record();
  void recycle(Handle record);
  [[nodiscard]] Pool& pool_of(const Block& block) { return pools_[block.stream][block.is_small ? 1 : 0]; }
  void add_stream();
  [[nodiscard]] static Place place_of(const Block& block, Handle handle);
  void enlist(Handle handle);
  void delist(Handle handle);
  [[nodiscard]] Handle split(Handle handle, Bytes size);
  [[nodiscard]] Handle merge_with_neighbours(Handle handle);
  [[nodiscard]] Bytes expandable_size(const Block& block) const;
  [[nodiscard]] Handle find_free(const Pool& pool, Bytes size) const;
  [[nodiscard]] Handle find_expandable(const Pool& pool, Bytes size) const;
  [[nodiscard]] Handle map(Handle unmapped, Bytes size);
  [[nodiscard]] Handle expand(Pool& pool, Bytes size);
  void unmap(Handle handle);

  std::vector<Block> blocks_;
  Handle recycled_ = kNone;
  std::vector<std::array<Pool, 2>> pools_;  // [stream][is_small]; of streams that have asked for memory
  Bytes allocated_ = 0;
  Bytes reserved_ = 0;
};

}  // namespace memcalc
