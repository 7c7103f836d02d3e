#include "memcalc/alloc/segment_placement.h"

#include <algorithm>

#include "memcalc/base/error.h"

namespace memcalc {

SegmentPlacer::SegmentPlacer(const SegmentPlacement& placement) : chunk_granularity_(placement.chunk_granularity) {
  for (const SegmentPlacement::Span& span : placement.initial_fragments) {
    add_fragment({.size = span.size, .address = span.offset});
  }
  if (placement.reserved_span) {
    span_begin_ = placement.reserved_span->offset;
    span_end_ = checked_add(span_begin_, placement.reserved_span->size);
  }
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
  if (unjoined_) join_fragments();
  const auto found =
      std::lower_bound(fragments_.begin(), fragments_.end(), size,
                       [](const Fragment& fragment, Bytes wanted) { return fragment.size < wanted; });
  if (found == fragments_.end()) return take_new_chunk(size);
  const Fragment fragment = *found;
  fragments_.erase(found);
  if (fragment.size > size) add_fragment({.size = fragment.size - size, .address = fragment.address + size});
  return fragment.address;
}

void SegmentPlacer::give_back(Bytes address, Bytes size) {
  if (logged_) return;
  fragments_.push_back({.size = size, .address = address});
  unjoined_ = true;  // joined at the next place(): empty_cache gives back many at once
}

Bytes SegmentPlacer::take_new_chunk(Bytes size) {
  const Bytes chunk = round_up(size, chunk_granularity_);
  Bytes address = checked_add(lowest_, -chunk);
  if (address < span_end_ && lowest_ > span_begin_) address = checked_add(span_begin_, -chunk);
  lowest_ = address;
  if (chunk > size) add_fragment({.size = chunk - size, .address = address + size});
  return address;
}

void SegmentPlacer::add_fragment(Fragment fragment) {
  fragments_.insert(std::upper_bound(fragments_.begin(), fragments_.end(), fragment), fragment);
}

void SegmentPlacer::join_fragments() {
  const auto by_address = [](const Fragment& a, const Fragment& b) { return a.address < b.address; };
  std::sort(fragments_.begin(), fragments_.end(), by_address);
  std::size_t kept = 0;
  for (std::size_t i = 1; i < fragments_.size(); ++i) {
    Fragment& last = fragments_[kept];
    if (last.address + last.size == fragments_[i].address) {
      last.size += fragments_[i].size;
    } else {
      fragments_[++kept] = fragments_[i];
    }
  }
  fragments_.resize(std::min(fragments_.size(), kept + 1));
  std::sort(fragments_.begin(), fragments_.end());
  unjoined_ = false;
}

}  // namespace memcalc
