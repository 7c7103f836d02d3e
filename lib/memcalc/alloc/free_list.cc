#include "memcalc/alloc/free_list.h"

#include <algorithm>
#include <limits>

namespace memcalc {

FreeList::FreeList() {
  constexpr std::size_t kFirstNodes = 1024;
  nodes_.reserve(kBucketCount + kFirstNodes);
  nodes_.resize(kBucketCount + 1);  // the last is both the head of the extra bucket and the node of kNone
  for (std::uint32_t head = 0; head <= kBucketCount; ++head) {
    nodes_[head] = {.size = std::numeric_limits<Bytes>::max(),
                    .address = std::numeric_limits<Bytes>::max(),
                    .previous = head,
                    .next = head,
                    .bucket = head};
  }
  filled_[kWordCount] = 1;
}

std::vector<FreeList::Handle> FreeList::blocks() const {
  std::vector<Handle> result;
  for (std::uint32_t bucket = 0; bucket < kBucketCount; ++bucket) {
    for (std::uint32_t node = nodes_[bucket].next; node != bucket; node = nodes_[node].next) {
      result.push_back(node - kBucketCount);
    }
  }
  return result;
}

void FreeList::make_room_for(std::uint32_t node) {
  nodes_.resize(std::max<std::size_t>(node + 1, nodes_.size() + nodes_.size() / 2));
}

}  // namespace memcalc
