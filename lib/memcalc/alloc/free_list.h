// The free blocks of one pool of the caching allocator, for the one question that it asks: the smallest block that
// holds a request and, among equals, the one at the lowest address.
//
// Blocks lie in buckets by size, sixteen to a power of two, so that a request finds its bucket with a shift and the
// next filled one with a bitmap. Within a bucket they are sorted, largest first: the one wanted is nearly always the
// last. A bucket holds few blocks, and all buckets share one flat array, so nothing is allocated per event.
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
  static constexpr std::uint32_t kNone = 0xffffffff;
  /// Every size is a multiple of this many bytes.
  static constexpr int kUnitBits = 9;

  struct Entry {
    Bytes size = 0;
    Bytes address = 0;
    std::uint32_t block = kNone;
  };

  /// Removes the best fit for `size` and returns its block; kNone where no block is large enough.
  [[nodiscard]] std::uint32_t take_best_fit(Bytes size) {
    const std::uint32_t home = bucket_of(size);
    Bucket& bucket = buckets_[home];
    if (bucket.count != 0) {
      const Entry* const last = &entries_[bucket.begin + bucket.count - 1];
      if (last->size >= size) return take_last(home);
      const std::uint32_t position = count_of_not_below(bucket, size);
      if (position != 0) {
        const std::uint32_t block = entries_[bucket.begin + position - 1].block;
        erase(home, position - 1);
        return block;
      }
    }
    const std::uint32_t next = next_filled_bucket(home + 1);
    return next == kBucketCount ? kNone : take_last(next);
  }

  void insert(const Entry& entry) {
    const std::uint32_t index = bucket_of(entry.size);
    Bucket& bucket = buckets_[index];
    if (bucket.count == bucket.capacity) grow(bucket);
    Entry* const begin = &entries_[bucket.begin];
    Entry* position = begin + bucket.count;
    for (; position != begin && is_better(position[-1], entry); --position) *position = position[-1];
    *position = entry;
    if (bucket.count++ == 0) mark_filled(index);
  }

  /// Pre: a block of this size and address is in the list.
  void remove(Bytes size, Bytes address) {
    const std::uint32_t index = bucket_of(size);
    const Bucket& bucket = buckets_[index];
    std::uint32_t position = bucket.count - 1;
    while (entries_[bucket.begin + position].address != address) --position;
    erase(index, position);
  }

  /// Every block, smallest buckets first.
  [[nodiscard]] std::vector<std::uint32_t> blocks() const;

 private:
  // 63-bit sizes have 54-bit counts of units: 16 buckets for the counts under 16, 16 for each further bit.
  static constexpr std::uint32_t kSubBucketBits = 4;
  static constexpr std::uint32_t kSubBuckets = 1U << kSubBucketBits;
  static constexpr std::uint32_t kBucketCount = (63 - kUnitBits - kSubBucketBits + 1) * kSubBuckets;
  static constexpr std::uint32_t kWordCount = (kBucketCount + 63) / 64;
  static_assert(kWordCount <= 32, "the summary has a bit for each word");

  struct Bucket {
    std::uint32_t begin = 0;  // into entries_
    std::uint32_t count = 0;
    std::uint32_t capacity = 0;
  };

  [[nodiscard]] static std::uint32_t bucket_of(Bytes size) {
    const std::uint64_t units = static_cast<std::uint64_t>(size) >> kUnitBits;
    const auto width = static_cast<std::uint32_t>(std::bit_width(units | (kSubBuckets - 1)));
    const std::uint32_t octave = width - kSubBucketBits;  // 0 for the counts under 16: their buckets are exact
    const std::uint32_t shift = octave == 0 ? 0 : octave - 1;
    return octave * kSubBuckets + static_cast<std::uint32_t>((units >> shift) & (kSubBuckets - 1));
  }

  [[nodiscard]] static bool is_better(const Entry& a, const Entry& b) {
    return a.size != b.size ? a.size < b.size : a.address < b.address;
  }

  // How many of a bucket's entries are at least `size`; they come first.
  [[nodiscard]] std::uint32_t count_of_not_below(const Bucket& bucket, Bytes size) const {
    std::uint32_t low = 0;
    std::uint32_t high = bucket.count;
    while (low < high) {
      const std::uint32_t middle = (low + high) / 2;
      if (entries_[bucket.begin + middle].size >= size) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  [[nodiscard]] std::uint32_t take_last(std::uint32_t index) {
    Bucket& bucket = buckets_[index];
    if (--bucket.count == 0) mark_empty(index);
    return entries_[bucket.begin + bucket.count].block;
  }

  void erase(std::uint32_t index, std::uint32_t position) {
    Bucket& bucket = buckets_[index];
    --bucket.count;
    for (Entry* entry = &entries_[bucket.begin]; position < bucket.count; ++position) {
      entry[position] = entry[position + 1];
    }
    if (bucket.count == 0) mark_empty(index);
  }

  void mark_filled(std::uint32_t index) {
    filled_[index / 64] |= std::uint64_t{1} << (index % 64);
    filled_words_ |= std::uint32_t{1} << (index / 64);
  }

  void mark_empty(std::uint32_t index) {
    std::uint64_t& word = filled_[index / 64];
    word &= ~(std::uint64_t{1} << (index % 64));
    if (word == 0) filled_words_ &= ~(std::uint32_t{1} << (index / 64));
  }

  // The first bucket at or after `index` that holds a block; kBucketCount where there is none.
  [[nodiscard]] std::uint32_t next_filled_bucket(std::uint32_t index) const {
    std::uint32_t word = index / 64;
    if (word >= kWordCount) return kBucketCount;
    const std::uint64_t rest = filled_[word] >> (index % 64);
    if (rest != 0) return index + static_cast<std::uint32_t>(std::countr_zero(rest));
    const std::uint64_t words = std::uint64_t{filled_words_} >> (word + 1);
    if (words == 0) return kBucketCount;
    word += 1 + static_cast<std::uint32_t>(std::countr_zero(words));
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(filled_[word]));
  }

  void grow(Bucket& bucket);

  std::vector<Entry> entries_;  // the buckets' ranges; one that outgrows its range moves to the end
  std::array<Bucket, kBucketCount> buckets_{};
  std::array<std::uint64_t, kWordCount> filled_{};  // a bit for each bucket that holds a block
  std::uint32_t filled_words_ = 0;                  // a bit for each word of filled_ that is not 0
};

}  // namespace memcalc
