#include "memcalc/alloc/caching_allocator.h"

#include <limits>
#include <string>
#include <utility>

#include "memcalc/base/error.h"

namespace memcalc {
namespace {

constexpr CachingAllocator::Handle kEmptyBlock = 0;

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

CachingAllocator::CachingAllocator(SegmentPlacer placer) : placer_(std::move(placer)) {
  blocks_.reserve(1024);
  blocks_.emplace_back();  // kEmptyBlock
}

CachingAllocator::Handle CachingAllocator::allocate(Bytes requested) {
  if (requested <= 0 || requested > kLargestRequest) [[unlikely]] {
    if (requested == 0) return kEmptyBlock;
    if (requested > 0) throw overflow_error();
    throw Error(ErrorCode::kInternal, "an allocation of a negative size: " + std::to_string(requested));
  }
  const Bytes size = round_up_unchecked(requested, kMinBlockSize);
  const bool is_small = size <= kSmallSize;
  FreeList& pool = is_small ? small_ : large_;
  Handle handle = pool.take_best_fit(size);
  if (handle == kNone) handle = new_segment(size, is_small);
  const Bytes rest = blocks_[handle].size - size;
  // A remainder that is too small to be worth a block stays inside this one and counts as allocated.
  if (is_small ? rest >= kMinBlockSize : rest > kSmallSize) split(handle, size);
  Block& block = blocks_[handle];
  block.is_free = false;
  allocated_ += block.size;
  return handle;
}

void CachingAllocator::free(Handle handle) {
  if (handle == kEmptyBlock) [[unlikely]] return;
  Block* block = &blocks_[handle];
  allocated_ -= block->size;
  FreeList& pool = pool_of(*block);
  if (const Handle next = block->next; next != kNone && blocks_[next].is_free) {
    const Block& absorbed = blocks_[next];
    pool.remove(absorbed.size, absorbed.address);
    block->size += absorbed.size;
    block->next = absorbed.next;
    if (block->next != kNone) blocks_[block->next].previous = handle;
    recycle(next);
  }
  if (const Handle previous = block->previous; previous != kNone && blocks_[previous].is_free) {
    Block& absorbing = blocks_[previous];
    pool.remove(absorbing.size, absorbing.address);
    absorbing.size += block->size;
    absorbing.next = block->next;
    if (block->next != kNone) blocks_[block->next].previous = previous;
    recycle(handle);
    handle = previous;
    block = &absorbing;
  }
  block->is_free = true;
  pool.insert({.size = block->size, .address = block->address, .block = handle});
}

void CachingAllocator::empty_cache() {
  for (FreeList* pool : {&small_, &large_}) {
    for (const Handle handle : pool->blocks()) {
      const Block& block = blocks_[handle];
      if (block.previous != kNone || block.next != kNone) continue;  // part of its segment is in use
      pool->remove(block.size, block.address);
      placer_.give_back(block.address, block.size);
      reserved_ -= block.size;
      --segments_;
      recycle(handle);
    }
  }
}

CachingAllocator::Handle CachingAllocator::new_record() {
  if (recycled_ == kNone) {
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

CachingAllocator::Handle CachingAllocator::new_segment(Bytes size, bool is_small) {
  const Bytes segment = segment_size_for(size, is_small);
  reserved_ = checked_add(reserved_, segment);
  const Bytes address = placer_.place(segment);
  ++segments_;
  const Handle record = new_record();
  blocks_[record] = {.address = address, .size = segment, .is_small = is_small};
  return record;
}

// The request takes the front; the remainder becomes a free block.
void CachingAllocator::split(Handle front, Bytes size) {
  const Handle rest = new_record();
  Block& block = blocks_[front];
  Block& remainder = blocks_[rest];
  remainder.address = block.address + size;
  remainder.size = block.size - size;
  remainder.previous = front;
  remainder.next = block.next;
  remainder.is_free = true;
  remainder.is_small = block.is_small;
  if (block.next != kNone) blocks_[block.next].previous = rest;
  block.next = rest;
  block.size = size;
  pool_of(remainder).insert({.size = remainder.size, .address = remainder.address, .block = rest});
}

}  // namespace memcalc
