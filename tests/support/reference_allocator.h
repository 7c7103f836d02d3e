// The caching allocator once more, written for obviousness instead of speed (std::map, std::set): the property test
// demands that alloc/caching_allocator.h agrees with it on random traces, block by block.
#pragma once

#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "memcalc/alloc/segment_placement.h"
#include "memcalc/base/bytes.h"

namespace memcalc::reference {

class ReferenceAllocator {
 public:
  explicit ReferenceAllocator(SegmentPlacer placer = {}) : placer_(std::move(placer)) {}

  /// The address of the block.
  Bytes allocate(Bytes requested) {
    const Bytes size = (requested + 511) / 512 * 512;
    const bool small = size <= kMiB;
    std::set<std::pair<Bytes, Bytes>>& pool = small ? small_ : large_;
    auto best = pool.lower_bound({size, std::numeric_limits<Bytes>::min()});
    if (best == pool.end()) {
      Bytes segment = 20 * kMiB;
      if (small) segment = 2 * kMiB;
      if (size >= 10 * kMiB) segment = (size + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
      const Bytes address = placer_.place(segment);
      blocks_[address] = {segment, address, segment, small, true};
      reserved_ += segment;
      best = pool.insert({segment, address}).first;
    }
    const Bytes address = best->second;
    pool.erase(best);
    Block& block = blocks_.at(address);
    const Bytes rest = block.size - size;
    if (small ? rest >= 512 : rest > kMiB) {
      block.size = size;
      blocks_[address + size] = {rest, block.segment, block.segment_size, small, true};
      pool.insert({rest, address + size});
    }
    block.is_free = false;
    allocated_ += block.size;
    return address;
  }

  void free(Bytes address) {
    auto at = blocks_.find(address);
    allocated_ -= at->second.size;
    std::set<std::pair<Bytes, Bytes>>& pool = at->second.small ? small_ : large_;
    const auto next = std::next(at);
    if (next != blocks_.end() && next->second.is_free && next->second.segment == at->second.segment) {
      pool.erase({next->second.size, next->first});
      at->second.size += next->second.size;
      blocks_.erase(next);
    }
    if (at != blocks_.begin()) {
      const auto previous = std::prev(at);
      if (previous->second.is_free && previous->second.segment == at->second.segment) {
        pool.erase({previous->second.size, previous->first});
        previous->second.size += at->second.size;
        blocks_.erase(at);
        at = previous;
      }
    }
    at->second.is_free = true;
    pool.insert({at->second.size, at->first});
  }

  void empty_cache() {
    for (auto at = blocks_.begin(); at != blocks_.end();) {
      const Block block = at->second;
      if (block.is_free && block.size == block.segment_size) {
        (block.small ? small_ : large_).erase({block.size, at->first});
        placer_.give_back(at->first, block.size);
        reserved_ -= block.size;
        at = blocks_.erase(at);
      } else {
        ++at;
      }
    }
  }

  [[nodiscard]] Bytes size_of(Bytes address) const { return blocks_.at(address).size; }
  [[nodiscard]] Bytes allocated() const { return allocated_; }
  [[nodiscard]] Bytes reserved() const { return reserved_; }

 private:
  struct Block {
    Bytes size = 0;
    Bytes segment = 0;  // address of the segment
    Bytes segment_size = 0;
    bool small = false;
    bool is_free = false;
  };
  std::map<Bytes, Block> blocks_;            // by address
  std::set<std::pair<Bytes, Bytes>> small_;  // (size, address)
  std::set<std::pair<Bytes, Bytes>> large_;
  Bytes allocated_ = 0;
  Bytes reserved_ = 0;
  SegmentPlacer placer_;
};

}  // namespace memcalc::reference
