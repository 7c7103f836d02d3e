#include "memcalc/alloc/expandable_allocator.h"

#include <algorithm>
#include <utility>

#include "memcalc/alloc/caching_allocator.h"
#include "memcalc/base/error.h"

namespace memcalc {
namespace {

// Of a pool's range. PyTorch takes 9/8 of the card and makes another range where that is not enough, which a run that
// fits never sees.
constexpr Bytes kRange = Bytes{1} << 62;

Bytes page_of(bool is_small) { return is_small ? kSmallBuffer : kLargeBuffer; }

}  // namespace

ExpandableAllocator::ExpandableAllocator() : blocks_(1) { add_stream(); }

void ExpandableAllocator::add_stream() {
  const auto stream = static_cast<std::uint8_t>(pools_.size());
  pools_.emplace_back();
  for (const bool is_small : {false, true}) {
    const Handle range = new_record();
    blocks_[range] = {.size = kRange / page_of(is_small) * page_of(is_small),
                      .state = State::kUnmapped,
                      .is_small = is_small,
                      .stream = stream};
    pool_of(blocks_[range]).first = range;
    enlist(range);
  }
}

std::size_t ExpandableAllocator::segments() const {
  std::size_t count = 0;
  for (const std::array<Pool, 2>& pools : pools_) {
    for (const Pool& pool : pools) {
      const Block& first = blocks_[pool.first];
      count += first.state == State::kUnmapped && first.next == kNone ? 0 : 1;
    }
  }
  return count;
}

ExpandableAllocator::Handle ExpandableAllocator::allocate(Bytes requested, std::size_t stream) {
  if (requested < 0) throw Error(ErrorCode::kInternal, "a request of a negative size");
  if (requested == 0) return kNone;
  const Bytes size = round_up(requested, kMinBlockSize);
  while (stream >= pools_.size()) add_stream();
  Pool& pool = pools_[stream][size <= kSmallSize ? 1 : 0];
  Handle handle = find_free(pool, size);
  if (handle == kNone) handle = expand(pool, size);
  delist(handle);
  // should_split: here in the large pool, too, everything that is left is split off.
  if (blocks_[handle].size > size) enlist(split(handle, size));
  blocks_[handle].state = State::kUsed;
  allocated_ += size;
  return handle;
}

void ExpandableAllocator::free_later(Handle handle) { allocated_ -= blocks_[handle].size; }

void ExpandableAllocator::free(Handle handle) {
  allocated_ -= blocks_[handle].size;
  finish(handle);
}

void ExpandableAllocator::finish(Handle handle) {
  if (handle == kNone) return;
  blocks_[handle].state = State::kFree;
  enlist(merge_with_neighbours(handle));
}

void ExpandableAllocator::empty_cache() {
  std::vector<Handle> free;
  for (const std::array<Pool, 2>& pools : pools_) {
    for (const Pool& pool : pools) {
      for (const Place& place : pool.free) free.push_back(place.block);
    }
  }
  for (const Handle handle : free) unmap(handle);
}

// get_free_block: best fit, but a block that could grow counts as large as it could become.
ExpandableAllocator::Handle ExpandableAllocator::find_free(const Pool& pool, Bytes size) const {
  auto best = pool.free.lower_bound({size, -kRange, kNone});
  if (best == pool.free.end()) return kNone;
  for (auto next = std::next(best); next != pool.free.end(); best = next++) {
    if (expandable_size(blocks_[next->block]) >= expandable_size(blocks_[best->block])) break;
  }
  return best->block;
}

Bytes ExpandableAllocator::expandable_size(const Block& block) const {
  const Block& next = blocks_[block.next];
  return block.size + (block.next != kNone && next.state == State::kUnmapped ? next.size : 0);
}

// find_expandable_block: the lowest address at which free and unmapped blocks in a row have room.
ExpandableAllocator::Handle ExpandableAllocator::find_expandable(const Pool& pool, Bytes size) const {
  for (const Place& place : pool.unmapped) {
    Handle first = place.block;
    const Handle below = blocks_[first].previous;
    if (below != kNone && blocks_[below].state == State::kFree) first = below;
    Bytes room = 0;
    for (Handle each = first; each != kNone && blocks_[each].state != State::kUsed; each = blocks_[each].next) {
      room += blocks_[each].size;
      if (room >= size) return first;
    }
  }
  throw overflow_error();
}

// try_allocate_expandable_block
ExpandableAllocator::Handle ExpandableAllocator::expand(Pool& pool, Bytes size) {
  Handle candidate = find_expandable(pool, size);
  if (blocks_[candidate].state == State::kUnmapped) candidate = map(candidate, std::min(blocks_[candidate].size, size));
  while (blocks_[candidate].size < size) {
    const Handle next = blocks_[candidate].next;
    candidate = map(next, std::min(size - blocks_[candidate].size, blocks_[next].size));
  }
  return candidate;
}

// map_block: whole pages, joined with the free blocks around them.
ExpandableAllocator::Handle ExpandableAllocator::map(Handle handle, Bytes size) {
  const Bytes mapped = round_up(size, page_of(blocks_[handle].is_small));
  delist(handle);
  if (mapped < blocks_[handle].size) enlist(split(handle, mapped));
  blocks_[handle].state = State::kFree;
  reserved_ = checked_add(reserved_, mapped);
  const Handle merged = merge_with_neighbours(handle);
  enlist(merged);
  return merged;
}

// unmap_block: the pages that lie wholly in a free block; what is before and after them stays free.
void ExpandableAllocator::unmap(Handle handle) {
  const Bytes page = page_of(blocks_[handle].is_small);
  const Bytes begin = round_up(blocks_[handle].address, page);
  const Bytes end = (blocks_[handle].address + blocks_[handle].size) / page * page;
  if (begin >= end) return;
  delist(handle);
  if (begin > blocks_[handle].address) {
    const Handle pages = split(handle, begin - blocks_[handle].address);
    enlist(handle);
    handle = pages;
  }
  if (blocks_[handle].size > end - begin) enlist(split(handle, end - begin));
  blocks_[handle].state = State::kUnmapped;
  reserved_ -= end - begin;
  enlist(merge_with_neighbours(handle));
}

// The block keeps its first `size` bytes; the rest becomes one of the same state, in no list.
ExpandableAllocator::Handle ExpandableAllocator::split(Handle handle, Bytes size) {
  const Handle rest = new_record();
  Block& front = blocks_[handle];
  Block& back = blocks_[rest];
  back = front;
  back.address += size;
  back.size -= size;
  back.previous = handle;
  front.size = size;
  front.next = rest;
  if (back.next != kNone) blocks_[back.next].previous = rest;
  return rest;
}

// Pre: the block is in no list. Neighbours of the same state become part of it.
ExpandableAllocator::Handle ExpandableAllocator::merge_with_neighbours(Handle handle) {
  const auto join = [&](Handle below, Handle above) {
    Block& target = blocks_[below];
    target.size += blocks_[above].size;
    target.next = blocks_[above].next;
    if (target.next != kNone) blocks_[target.next].previous = below;
    recycle(above);
  };
  const Handle next = blocks_[handle].next;
  if (next != kNone && blocks_[next].state == blocks_[handle].state) {
    delist(next);
    join(handle, next);
  }
  const Handle previous = blocks_[handle].previous;
  if (previous == kNone || blocks_[previous].state != blocks_[handle].state) return handle;
  delist(previous);
  join(previous, handle);
  return previous;
}

ExpandableAllocator::Place ExpandableAllocator::place_of(const Block& block, Handle handle) {
  return {block.state == State::kUnmapped ? 0 : block.size, block.address, handle};
}

void ExpandableAllocator::enlist(Handle handle) {
  const Block& block = blocks_[handle];
  (block.state == State::kUnmapped ? pool_of(block).unmapped : pool_of(block).free).insert(place_of(block, handle));
}

void ExpandableAllocator::delist(Handle handle) {
  const Block& block = blocks_[handle];
  (block.state == State::kUnmapped ? pool_of(block).unmapped : pool_of(block).free).erase(place_of(block, handle));
}

ExpandableAllocator::Handle ExpandableAllocator::new_record() {
  if (recycled_ == kNone) {
    blocks_.emplace_back();
    return static_cast<Handle>(blocks_.size() - 1);
  }
  const Handle record = recycled_;
  recycled_ = blocks_[record].next;
  return record;
}

void ExpandableAllocator::recycle(Handle record) {
  blocks_[record].next = recycled_;
  recycled_ = record;
}

}  // namespace memcalc
