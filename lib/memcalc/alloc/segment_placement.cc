#include "memcalc/alloc/segment_placement.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "memcalc/base/error.h"

namespace memcalc {
namespace {

constexpr Bytes kBottom = -std::numeric_limits<Bytes>::max();  // so that 0 - kBottom is no overflow

constexpr auto kIsAbove = [](const auto& a, const auto& b) { return a.address > b.address; };

}  // namespace

SegmentPlacer::SegmentPlacer() : holes_{{.address = kBottom, .size = -kBottom}} {}

SegmentPlacer::SegmentPlacer(const SegmentPlacement& placement) : chunk_granularity_(placement.chunk_granularity) {
  for (const SegmentPlacement::Span& span : placement.initial_fragments) {
    add_fragment({.address = span.offset, .size = span.size});
  }
  Bytes top = 0;
  if (placement.reserved_span) {
    const Bytes span_end = checked_add(placement.reserved_span->offset, placement.reserved_span->size);
    if (span_end < 0) holes_.push_back({.address = span_end, .size = -span_end});
    top = std::min(top, placement.reserved_span->offset);
  }
  holes_.push_back({.address = kBottom, .size = top - kBottom});
}

SegmentPlacer SegmentPlacer::from_log(std::span<const Bytes> addresses) {
  SegmentPlacer placer;
  placer.logged_ = true;
  placer.logged_addresses_.assign(addresses.begin(), addresses.end());
  return placer;
}

Bytes SegmentPlacer::place(Bytes size) {
  if (logged_) {
    if (next_logged_ == logged_addresses_.size()) {
      throw Error(ErrorCode::kInternal, "the log of segment addresses is shorter than the trace needs");
    }
    return logged_addresses_[next_logged_++];
  }
  if (unsettled_) settle();
  if (size > largest_) return take_new_chunk(size);
  // The lowest that is large enough.
  const auto found = std::find_if(fragments_.rbegin(), fragments_.rend(),
                                  [size](const Span& fragment) { return fragment.size >= size; });
  if (found == fragments_.rend()) {
    largest_ = 0;
    for (const Span& fragment : fragments_) largest_ = std::max(largest_, fragment.size);
    return take_new_chunk(size);
  }
  const Bytes address = found->address;
  if (found->size > size) {
    *found = {.address = address + size, .size = found->size - size};
  } else {
    fragments_.erase(std::next(found).base());
  }
  return address;
}

void SegmentPlacer::give_back(Bytes address, Bytes size) {
  if (logged_) return;
  fragments_.push_back({.address = address, .size = size});
  unsettled_ = true;  // settled at the next place(): empty_cache gives back many at once
}

// The upper end of the highest hole that is large enough.
Bytes SegmentPlacer::take_new_chunk(Bytes size) {
  const Bytes chunk = round_up(size, chunk_granularity_);
  const auto hole =
      std::find_if(holes_.begin(), holes_.end(), [chunk](const Span& candidate) { return candidate.size >= chunk; });
  if (hole == holes_.end()) throw overflow_error();
  hole->size -= chunk;
  const Bytes address = hole->address + hole->size;
  if (hole->size == 0) holes_.erase(hole);
  chunks_.push_back({.address = address, .size = chunk});
  if (chunk > size) add_fragment({.address = address + size, .size = chunk - size});
  return address;
}

void SegmentPlacer::add_fragment(Span fragment) {
  largest_ = std::max(largest_, fragment.size);
  fragments_.insert(std::upper_bound(fragments_.begin(), fragments_.end(), fragment, kIsAbove), fragment);
}

// Joins the fragments within each chunk; a chunk that is wholly free again becomes a hole, and joins its neighbours.
void SegmentPlacer::settle() {
  std::sort(fragments_.begin(), fragments_.end(), kIsAbove);
  std::sort(chunks_.begin(), chunks_.end(), kIsAbove);
  std::vector<Span> fragments;
  std::vector<Span> chunks;
  auto fragment = fragments_.begin();
  for (const Span& chunk : chunks_) {
    for (; fragment != fragments_.end() && fragment->address >= chunk.address + chunk.size; ++fragment) {
      fragments.push_back(*fragment);  // of no chunk: there from the start
    }
    const std::size_t first = fragments.size();
    for (; fragment != fragments_.end() && fragment->address >= chunk.address; ++fragment) {
      if (fragments.size() > first && fragments.back().address == fragment->address + fragment->size) {
        fragments.back() = {.address = fragment->address, .size = fragments.back().size + fragment->size};
      } else {
        fragments.push_back(*fragment);
      }
    }
    if (fragments.size() > first && fragments.back() == chunk) {
      fragments.pop_back();
      holes_.push_back(chunk);
    } else {
      chunks.push_back(chunk);
    }
  }
  fragments.insert(fragments.end(), fragment, fragments_.end());
  fragments_ = std::move(fragments);
  for (const Span& each : fragments_) largest_ = std::max(largest_, each.size);
  chunks_ = std::move(chunks);

  std::sort(holes_.begin(), holes_.end(), kIsAbove);
  std::vector<Span> holes;
  for (const Span& hole : holes_) {
    if (!holes.empty() && holes.back().address == hole.address + hole.size) {
      holes.back() = {.address = hole.address, .size = holes.back().size + hole.size};
    } else {
      holes.push_back(hole);
    }
  }
  holes_ = std::move(holes);
  unsettled_ = false;
}

}  // namespace memcalc
