// The free blocks of one pool of the caching allocator, for the one question that it asks: the smallest block that
// holds a request and, among equals, the one at the lowest address.
//
// The blocks are in buckets by size, sixteen to a power of two, so that a request finds its bucket with a shift and the
// next filled one with a bitmap. A bucket is a ring of blocks, the best one first, through a head that is larger
// than all. Rings hold a few blocks and live in one flat array: nothing is allocated, and a removal searches nothing.
// A model of thousands of layers has rings of thousands of blocks: one that takes long to walk gets an ordered index.
// Covered by tests/unit/alloc_test.cc.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "memcalc/base/bytes.h"
#include "memcalc/base/kept_vector.h"

namespace memcalc {

class FreeList {
 public:
  using Handle = std::uint32_t;
  static constexpr Handle kNone = 0;  // the handle of no block

  FreeList();

  /// The best block for `size`, which stays in the list; kNone where no block is large enough.
  /// Pre, here and below: sizes are positive multiples of 512.
  [[nodiscard]] Handle best_fit(Bytes size) {
    const std::uint32_t home = bucket_of(size);
    std::uint32_t node = nodes_[next_filled_bucket(home)].next;
    if (nodes_[node].size < size) [[unlikely]]
      node = first_of_size(node, home, size);
    return node - kBucketCount;
  }

  /// Pre: the block is not in the list.
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
    const std::uint32_t bucket = bucket_of(size);
    // Most often the block is alone in its bucket and stays there. A ring of one has no index.
    const bool stays = node.bucket == bucket && node.previous == node.next && !has_indexes_;
    if (!stays) unlink(self);
    node.size = size;
    node.address = address;
    if (!stays) link(self, bucket);
  }

  /// Every block of the list, in no particular order.
  [[nodiscard]] std::vector<Handle> blocks() const;

 private:
  // Sizes from 2^9 to 2^63, 16 buckets to a power of two, in whole words of the bitmap. One more bucket is always
  // marked as filled, so that every search ends; its head is the node of kNone.
  static constexpr std::uint32_t kSubBucketBits = 4;
  static constexpr std::uint32_t kSmallestBits = 9;
  static constexpr std::uint32_t kWordCount = (((63 - kSmallestBits) << kSubBucketBits) + 1 + 63) / 64;
  static constexpr std::uint32_t kBucketCount = kWordCount * 64;
  static constexpr std::size_t kLongWalk = 64;  // steps in a ring, before it gets an index

  struct Node {
    Bytes size = 0;
    Bytes address = 0;
    std::uint32_t previous = 0;  // indices into nodes_
    std::uint32_t next = 0;
    std::uint32_t bucket = 0;
  };

  [[nodiscard]] static std::uint32_t node_of(Handle block) { return kBucketCount + block; }

  // By size, then by address.
  [[nodiscard]] bool is_better(std::uint32_t a, std::uint32_t b) const {
    const Node& x = nodes_[a];
    const Node& y = nodes_[b];
    // Without a branch: which of the two decides is hard to predict.
    return static_cast<bool>(static_cast<int>(x.size < y.size) |
                             (static_cast<int>(x.size == y.size) & static_cast<int>(x.address < y.address)));
  }

  // The exponent and the first bits of the mantissa of a double, read as an integer, are the bucket. The conversion
  // may round a size up, but never past that of a larger size, and order is all that is asked of a bucket.
  [[nodiscard]] static std::uint32_t bucket_of(Bytes size) {
    static_assert(std::numeric_limits<double>::is_iec559);
    constexpr std::uint32_t kMantissaBits = 52;
    constexpr std::uint64_t kFirst = (std::uint64_t{1023} + kSmallestBits) << kSubBucketBits;
    return static_cast<std::uint32_t>((bits_of(static_cast<double>(size)) >> (kMantissaBits - kSubBucketBits)) -
                                      kFirst);
  }

  void link(std::uint32_t self, std::uint32_t bucket) {
    if (has_indexes_) [[unlikely]]
      return link_indexed(self, bucket);
    link_in_ring(self, bucket);
  }

  void unlink(std::uint32_t self) {
    if (has_indexes_) [[unlikely]]
      return unlink_indexed(self);
    unlink_from_ring(self);
  }

  void link_in_ring(std::uint32_t self, std::uint32_t bucket) {
    const std::uint32_t first = nodes_[bucket].next;
    const std::uint32_t last = nodes_[bucket].previous;
    // Most blocks go to an end of the ring (in an empty one, first and last are the head). Which end is hard to
    // predict, so it is selected, not branched to.
    const bool is_first = is_better(self, first);
    std::uint32_t after = is_first ? first : bucket;
    std::uint32_t before = is_first ? bucket : last;
    if (!is_first && is_better(self, last)) [[unlikely]] {
      before = last_better_than(self, first, last);
      after = nodes_[before].next;
    }
    nodes_[self].previous = before;
    nodes_[self].next = after;
    nodes_[self].bucket = bucket;
    nodes_[before].next = self;
    nodes_[after].previous = self;
    filled_[bucket / 64] |= std::uint64_t{1} << (bucket % 64);
  }

  // Pre: `node` is the first of the request's own bucket, which alone holds smaller blocks than it. Its head ends the
  // search.
  [[nodiscard]] [[gnu::noinline]] std::uint32_t first_of_size(std::uint32_t node, std::uint32_t home, Bytes size) {
    std::size_t steps = 0;
    do node = nodes_[node].next;
    while (nodes_[node].size < size && ++steps < kLongWalk);
    if (steps == kLongWalk) [[unlikely]]
      node = first_in_index(home, size, std::numeric_limits<Bytes>::min());
    return node == home ? nodes_[next_filled_bucket(home + 1)].next : node;
  }

  // Pre: first is better than self, last is not. Walks from both ends, since a group of equal sizes can be long.
  [[nodiscard]] [[gnu::noinline]] std::uint32_t last_better_than(std::uint32_t self, std::uint32_t first,
                                                                 std::uint32_t last) {
    for (std::size_t steps = 0; steps < kLongWalk; ++steps) {
      const std::uint32_t second = nodes_[first].next;
      if (is_better(self, second)) return first;
      first = second;
      last = nodes_[last].previous;
      if (is_better(last, self)) return last;
    }
    return enter_index(self);
  }

  void unlink_from_ring(std::uint32_t self) {
    const Node& node = nodes_[self];
    nodes_[node.previous].next = node.next;
    nodes_[node.next].previous = node.previous;
    // Whether the ring is empty now is hard to predict: the bit is cleared without a branch.
    filled_[node.bucket / 64] &= ~(std::uint64_t{node.previous == node.next} << (node.bucket % 64));
  }

  // The first bucket at or after `bucket` that holds a block; the extra one, with no block, where there is none.
  [[nodiscard]] std::uint32_t next_filled_bucket(std::uint32_t bucket) const {
    std::uint32_t word = bucket / 64;
    const std::uint64_t rest = filled_[word] >> (bucket % 64);
    if (rest != 0) return bucket + static_cast<std::uint32_t>(std::countr_zero(rest));
    do ++word;
    while (filled_[word] == 0);
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(filled_[word]));
  }

  [[gnu::cold]] void make_room_for(std::uint32_t node);

  /// The blocks of one bucket, by size, address and node.
  using Index = std::set<std::tuple<Bytes, Bytes, std::uint32_t>>;
  [[nodiscard]] const Index& index_of(std::uint32_t bucket);
  // The same where some rings have an index. Rare, and kept out of what is inlined.
  [[gnu::cold]] void link_indexed(std::uint32_t self, std::uint32_t bucket);
  [[gnu::cold]] void unlink_indexed(std::uint32_t self);
  // Puts a node into the index of its bucket, which it makes where there is none; the node before it in the ring.
  [[gnu::cold]] std::uint32_t enter_index(std::uint32_t self);
  // The best one of at least this size and, among equals, of at least this address; the head where there is none. Makes
  // the index where there is none.
  [[nodiscard]] [[gnu::cold]] std::uint32_t first_in_index(std::uint32_t bucket, Bytes size, Bytes address);

  KeptVector<Node> nodes_;                              // the heads of the buckets, then a node for each handle
  std::array<std::uint64_t, kWordCount + 1> filled_{};  // a bit for each bucket that holds a block, and the extra one
  bool has_indexes_ = false;
  std::map<std::uint32_t, Index> indexes_;  // by bucket, of long rings
};

}  // namespace memcalc
