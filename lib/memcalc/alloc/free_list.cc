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

const FreeList::Index& FreeList::index_of(std::uint32_t bucket) {
  const auto [place, is_new] = indexes_.try_emplace(bucket);
  Index& index = place->second;
  if (!is_new) return index;
  for (std::uint32_t node = nodes_[bucket].next; node != bucket; node = nodes_[node].next) {
    index.emplace_hint(index.end(), nodes_[node].size, nodes_[node].address, node);
  }
  has_indexes_ = true;
  return index;
}

void FreeList::link_indexed(std::uint32_t self, std::uint32_t bucket) {
  link_in_ring(self, bucket);
  const auto index = indexes_.find(bucket);
  if (index != indexes_.end()) index->second.emplace(nodes_[self].size, nodes_[self].address, self);
}

void FreeList::unlink_indexed(std::uint32_t self) {
  const Node& node = nodes_[self];
  const auto index = indexes_.find(node.bucket);
  if (index != indexes_.end()) index->second.erase({node.size, node.address, self});
  unlink_from_ring(self);
}

std::uint32_t FreeList::enter_index(std::uint32_t self) {
  const Node& node = nodes_[self];
  const std::uint32_t bucket = bucket_of(node.size);
  const std::uint32_t next = first_in_index(bucket, node.size, node.address);
  indexes_.at(bucket).emplace(node.size, node.address, self);
  return nodes_[next].previous;
}

std::uint32_t FreeList::first_in_index(std::uint32_t bucket, Bytes size, Bytes address) {
  const Index& index = index_of(bucket);
  const auto found = index.lower_bound({size, address, 0});
  return found == index.end() ? bucket : std::get<2>(*found);
}

void FreeList::make_room_for(std::uint32_t node) {
  nodes_.resize(std::max<std::size_t>(node + 1, nodes_.size() + nodes_.size() / 2));
}

}  // namespace memcalc
