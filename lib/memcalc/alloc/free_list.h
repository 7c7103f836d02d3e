// The free blocks of one pool of the caching allocator, for the one question that it asks: the smallest block that
// holds a request and, among equals, the one at the lowest address.
//
// The blocks are in buckets by size, sixteen to a power of two, so that a request finds its bucket with a shift and the
// next filled one with a bitmap. A bucket is a ring of blocks, the best one first, through a head that is larger
// than all. Rings hold a few blocks and live in one flat array: nothing is allocated, and a removal searches nothing.
// Covered by tests/unit/alloc_test.cc.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "memcalc/base/bytes.h"

namespace memcalc {

class FreeList {
 public:
  using Handle = std::uint32_t;
  static constexpr Handle kNone = 0;  // the handle of no block

  FreeList();

  /// The best block for `size`, which stays in the list; kNone where no block is large enough.
  [[nodiscard]] Handle best_fit(Bytes size) const {
    const std::uint32_t home = bucket_of(size);
    const std::uint32_t filled = next_filled_bucket(home);
    if (filled == kBucketCount) return kNone;
    std::uint32_t node = nodes_[filled].next;
    if (nodes_[node].size >= size) [[likely]] return node - kBucketCount;
    // Only the request's own bucket holds smaller blocks than it.
    do node = nodes_[node].next;
    while (nodes_[node].size < size);
    if (node >= kBucketCount) return node - kBucketCount;
    const std::uint32_t next = next_filled_bucket(home + 1);
    return next == kBucketCount ? kNone : nodes_[next].next - kBucketCount;
  }

  /// Pre: the block is not in the list. `size` is a positive multiple of 512.
  void insert(Handle block, Bytes size, Bytes address) {
    const std::uint32_t self = node_of(block);
    if (self >= nodes_.size()) make_room_for(self);
    nodes_[self].size = size;
    nodes_[self].address = address;
    link(self, bucket_of(size));
  }

  /// Pre: the block is in the list.
  void remove(Handle block) { unlink(node_of(block)); }

  /// Changes the size and the address of a block of the list.
  void update(Handle block, Bytes size, Bytes address) {
    const std::uint32_t self = node_of(block);
    Node& node = nodes_[self];
    const std::uint32_t old_bucket = bucket_of(node.size);
    const std::uint32_t new_bucket = bucket_of(size);
    node.size = size;
    node.address = address;
    // Most often the block is alone in its bucket and stays there.
    if (old_bucket == new_bucket && node.previous == node.next) return;
    unlink(self);
    link(self, new_bucket);
  }

  /// Every block of the list, in no particular order.
  [[nodiscard]] std::vector<Handle> blocks() const;

 private:
  static constexpr int kUnitBits = 9;  // sizes are multiples of 512 bytes
  // 63-bit sizes are 54-bit counts of units: 16 buckets for the counts under 16, 16 for each further bit; a few more
  // make whole words of the bitmap.
  static constexpr std::uint32_t kSubBucketBits = 4;
  static constexpr std::uint32_t kSubBuckets = 1U << kSubBucketBits;
  static constexpr std::uint32_t kWordCount = ((63 - kUnitBits - kSubBucketBits + 1) * kSubBuckets + 63) / 64;
  static constexpr std::uint32_t kBucketCount = kWordCount * 64;
  static_assert(kWordCount < 32, "the summary has a bit for each word");

  struct Node {
    Bytes size = 0;
    Bytes address = 0;
    std::uint32_t previous = 0;  // indices into nodes_
    std::uint32_t next = 0;
  };

  [[nodiscard]] static std::uint32_t node_of(Handle block) { return kBucketCount + block; }

  // By size, then by address.
  [[nodiscard]] bool is_better(std::uint32_t a, std::uint32_t b) const {
    return nodes_[a].size != nodes_[b].size ? nodes_[a].size < nodes_[b].size : nodes_[a].address < nodes_[b].address;
  }

  [[nodiscard]] static std::uint32_t bucket_of(Bytes size) {
    const std::uint64_t units = static_cast<std::uint64_t>(size) >> kUnitBits;
    const auto width = static_cast<std::uint32_t>(std::bit_width(units | (kSubBuckets - 1)));
    const std::uint32_t octave = width - kSubBucketBits;  // 0 for the counts under 16: their buckets are exact
    const std::uint32_t shift = octave - (octave != 0 ? 1U : 0U);
    return octave * kSubBuckets + static_cast<std::uint32_t>((units >> shift) & (kSubBuckets - 1));
  }

  // Walks into the ring from both ends: a group of equal sizes can be long, and most blocks go to one of its ends.
  void link(std::uint32_t self, std::uint32_t bucket) {
    std::uint32_t after = nodes_[bucket].next;
    std::uint32_t before = nodes_[bucket].previous;
    while (true) {
      if (is_better(self, after)) {  // true at the head at the latest
        before = nodes_[after].previous;
        break;
      }
      if (is_better(before, self)) {
        after = nodes_[before].next;
        break;
      }
      after = nodes_[after].next;
      before = nodes_[before].previous;
    }
    nodes_[self].previous = before;
    nodes_[self].next = after;
    nodes_[before].next = self;
    nodes_[after].previous = self;
    filled_[bucket / 64] |= std::uint64_t{1} << (bucket % 64);
    filled_words_ |= std::uint32_t{1} << (bucket / 64);
  }

  void unlink(std::uint32_t self) {
    const std::uint32_t before = nodes_[self].previous;
    const std::uint32_t after = nodes_[self].next;
    nodes_[before].next = after;
    nodes_[after].previous = before;
    if (before != after) return;
    // Only the head is left; it has the number of its bucket.
    std::uint64_t& word = filled_[before / 64];
    word &= ~(std::uint64_t{1} << (before % 64));
    filled_words_ &= ~((word == 0 ? std::uint32_t{1} : std::uint32_t{0}) << (before / 64));
  }

  // The first bucket at or after `bucket` that holds a block; kBucketCount where there is none.
  [[nodiscard]] std::uint32_t next_filled_bucket(std::uint32_t bucket) const {
    std::uint32_t word = bucket / 64;
    const std::uint64_t rest = filled_[word] >> (bucket % 64);
    if (rest != 0) return bucket + static_cast<std::uint32_t>(std::countr_zero(rest));
    const std::uint32_t words = filled_words_ >> (word + 1);
    if (words == 0) return kBucketCount;
    word += 1 + static_cast<std::uint32_t>(std::countr_zero(words));
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(filled_[word]));
  }

  void make_room_for(std::uint32_t node);

  std::vector<Node> nodes_;  // the heads of the buckets, then a node for each handle
  std::array<std::uint64_t, kWordCount + 1> filled_{};  // a bit for each bucket that holds a block
  std::uint32_t filled_words_ = 0;                      // a bit for each word of filled_ that is not 0
};

}  // namespace memcalc
