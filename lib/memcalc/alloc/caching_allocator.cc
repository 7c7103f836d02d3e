// MIRRORS(torch, "CUDACachingAllocator.cpp", "2.11.0")
#include "memcalc/alloc/caching_allocator.h"

#include <limits>
#include <string>
#include <utility>

#include "memcalc/base/error.h"

namespace memcalc {
namespace {

// Up to here no rounding leaves 63 bits, so that only the sum of the segments needs a check: allocated never exceeds
// reserved, and every size is part of a segment.
constexpr Bytes kLargestRequest = std::numeric_limits<Bytes>::max() - kRoundLarge;

// The sizes are powers of two and the values positive: cheaper than base/bytes.h's checked round_up.
constexpr Bytes round_up_unchecked(Bytes value, Bytes power_of_two) {
  return (value + power_of_two - 1) & ~(power_of_two - 1);
}

constexpr Bytes segment_size_for(Bytes size, bool is_small) {
  if (is_small) return kSmallBuffer;
  return size < kMinLargeAlloc ? kLargeBuffer : round_up_unchecked(size, kRoundLarge);
}

}  // namespace

CachingAllocator::CachingAllocator(SegmentPlacer placer, Bytes capacity, std::size_t private_stream)
    : pools_(1), capacity_(capacity), private_stream_(private_stream), placer_(std::move(placer)) {
  blocks_.reserve(1024);
  blocks_.emplace_back();  // kEmptyBlock
}

CachingAllocator::Handle CachingAllocator::allocate(Bytes requested, std::size_t stream) {
  if (requested <= 0 || requested > kLargestRequest) [[unlikely]] {
    if (requested == 0) return kEmptyBlock;
    if (requested > 0) throw overflow_error();
    throw Error(ErrorCode::kInternal, "an allocation of a negative size: " + std::to_string(requested));
  }
  const Bytes size = round_up_unchecked(requested, kMinBlockSize);
  const bool is_small = size <= kSmallSize;
  if (stream >= pools_.size()) [[unlikely]]
    pools_.resize(stream + 1);
  FreeList& pool = pools_[stream][is_small];
  Handle handle = pool.best_fit(size);
  if (handle == FreeList::kNone) [[unlikely]]
    handle = new_segment(size, is_small, stream);
  // A remainder that is too small to be worth a block stays inside this one and counts as allocated.
  const Bytes smallest_remainder = is_small ? kMinBlockSize : kSmallSize + kMinBlockSize;
  if (blocks_[handle].size - size >= smallest_remainder) {
    handle = carve_front(handle, size);
  } else {
    pool.remove(handle);
    blocks_[handle].is_free = false;
  }
  allocated_ += blocks_[handle].size;
  return handle;
}

void CachingAllocator::free_later(Handle handle) { allocated_ -= blocks_[handle].size; }

void CachingAllocator::free(Handle handle) {
  allocated_ -= blocks_[handle].size;
  finish(handle);
}

void CachingAllocator::finish(Handle handle) {
  if (handle == kEmptyBlock) [[unlikely]]
    return;
  Block* const blocks = blocks_.data();
  Block& block = blocks[handle];
  FreeList& pool = pool_of(block);
  const Handle previous = block.previous;
  const Handle next = block.next;
  if (blocks[previous].is_free) {
    // The free neighbour below keeps its record and its place in the free list, and grows.
    Block& below = blocks[previous];
    below.size += block.size;
    below.next = next;
    recycle(handle);
    if (blocks[next].is_free) {
      below.size += blocks[next].size;
      below.next = blocks[next].next;
      pool.remove(next);
      recycle(next);
    }
    blocks[below.next].previous = previous;
    pool.update(previous, below.size, below.address);
  } else if (blocks[next].is_free) {
    // So does the one above, downward.
    Block& above = blocks[next];
    above.address = block.address;
    above.size += block.size;
    above.previous = previous;
    blocks[previous].next = next;
    recycle(handle);
    pool.update(next, above.size, above.address);
  } else {
    block.is_free = true;
    pool.insert(handle, block.size, block.address);
  }
}

void CachingAllocator::empty_cache() {
  for (std::size_t stream = 0; stream < pools_.size(); ++stream) {
    // release_cached_blocks(): of private pools those that no graph refers to (graph_pools_freeable).
    if (stream == private_stream_) continue;
    for (FreeList& pool : pools_[stream]) return_free_segments(pool);
  }
}

void CachingAllocator::return_free_segments(FreeList& pool) {
  for (const Handle handle : pool.blocks()) {
    const Block& block = blocks_[handle];
    if (block.previous != kEmptyBlock || block.next != kEmptyBlock) continue;  // its segment is in use
    pool.remove(handle);
    placer_.give_back(block.address, block.size);
    reserved_ -= block.size;
    --segments_;
    recycle(handle);
  }
}

CachingAllocator::Handle CachingAllocator::new_record() {
  if (recycled_ == kEmptyBlock) {
    blocks_.emplace_back();
    return static_cast<Handle>(blocks_.size() - 1);
  }
  const Handle record = recycled_;
  recycled_ = blocks_[record].next;
  return record;
}

void CachingAllocator::recycle(Handle record) {
  blocks_[record].next = recycled_;
  recycled_ = record;
}

// CUDACachingAllocator.cpp, malloc(): where cudaMalloc fails, release_cached_blocks() and once more. The step between
// them, release_available_cached_blocks(), does nothing unless max_split_size_mb is set.
void CachingAllocator::make_room_for(Bytes segment) {
  if (checked_add(reserved_, segment) <= capacity_) return;
  ++retries_;
  empty_cache();
  if (checked_add(reserved_, segment) <= capacity_) return;
  out_of_memory_ = true;
  capacity_ = std::numeric_limits<Bytes>::max();
}

// One free block, in the list.
CachingAllocator::Handle CachingAllocator::new_segment(Bytes size, bool is_small, std::size_t stream) {
  const Bytes segment = segment_size_for(size, is_small);
  make_room_for(segment);
  reserved_ = checked_add(reserved_, segment);
  const Bytes address = placer_.place(segment);
  ++segments_;
  const Handle record = new_record();
  blocks_[record] = {.address = address,
                     .size = segment,
                     .is_free = true,
                     .is_small = is_small,
                     .stream = static_cast<std::uint8_t>(stream)};
  pools_[stream][is_small].insert(record, segment, address);
  return record;
}

// A block of `size` at the front of a free one, which keeps its record and its place in the free list, and shrinks.
CachingAllocator::Handle CachingAllocator::carve_front(Handle remainder, Bytes size) {
  const Handle front = new_record();
  Block& rest = blocks_[remainder];
  blocks_[front] = {.address = rest.address,
                    .size = size,
                    .previous = rest.previous,
                    .next = remainder,
                    .is_free = false,
                    .is_small = rest.is_small,
                    .stream = rest.stream};
  blocks_[rest.previous].next = front;
  rest.previous = front;
  rest.address += size;
  rest.size -= size;
  pool_of(rest).update(remainder, rest.size, rest.address);
  return front;
}

}  // namespace memcalc
