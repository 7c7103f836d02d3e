#include "memcalc/alloc/free_list.h"

#include <algorithm>

namespace memcalc {

std::vector<std::uint32_t> FreeList::blocks() const {
  std::vector<std::uint32_t> result;
  for (const Bucket& bucket : buckets_) {
    for (std::uint32_t i = 0; i < bucket.count; ++i) result.push_back(entries_[bucket.begin + i].block);
  }
  return result;
}

void FreeList::grow(Bucket& bucket) {
  constexpr std::uint32_t kFirstCapacity = 4;
  const std::uint32_t capacity = std::max(kFirstCapacity, 2 * bucket.capacity);
  const auto begin = static_cast<std::uint32_t>(entries_.size());
  entries_.resize(entries_.size() + capacity);
  std::copy_n(entries_.begin() + bucket.begin, bucket.count, entries_.begin() + begin);
  bucket.begin = begin;
  bucket.capacity = capacity;
}

}  // namespace memcalc
