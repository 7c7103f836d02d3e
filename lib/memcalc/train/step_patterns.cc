#include "memcalc/train/step_patterns.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "memcalc/base/error.h"

namespace memcalc {

namespace {

constexpr BlockId kOfEarlierStep = -2;
constexpr std::size_t kExamples = 4;  // steps of a pattern that are executed before one is told

std::vector<BlockId> unfreed(const Trace& trace, const StepSpan& span) {
  std::vector<bool> freed(span.last_block - span.first_block);
  for (std::size_t i = span.first_event; i < span.last_event; ++i) {
    const Event& event = trace.events[i];
    const auto block = static_cast<std::size_t>(event.block);
    if (event.kind == EventKind::kFree && block >= span.first_block) freed[block - span.first_block] = true;
  }
  std::vector<BlockId> result;
  for (std::size_t i = 0; i < freed.size(); ++i) {
    if (!freed[i]) result.push_back(static_cast<BlockId>(span.first_block + i));
  }
  return result;
}

bool same_request(const Event& a, const Event& b) {
  return a.op == b.op && a.node == b.node && a.block == b.block && a.kind == b.kind && a.phase == b.phase;
}

std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0xff51afd7ed558ccdU;
  return hash ^ (hash >> 29U);
}

/// The order of a step's requests, whatever their sizes.
std::uint64_t order_of(const Trace& trace, const StepSpan& span) {
  std::uint64_t hash = span.last_block - span.first_block;
  for (std::size_t i = span.first_event; i < span.last_event; ++i) {
    const Event& event = trace.events[i];
    const bool is_own = event.block == kNoBlock || static_cast<std::size_t>(event.block) >= span.first_block;
    const auto first = static_cast<BlockId>(event.block == kNoBlock ? 0 : span.first_block);
    hash = mixed(hash, reinterpret_cast<std::uintptr_t>(event.op));
    hash = mixed(hash, reinterpret_cast<std::uintptr_t>(event.node));
    hash = mixed(hash, static_cast<std::uint32_t>(is_own ? event.block - first : kOfEarlierStep));
    hash = mixed(hash, static_cast<std::uint64_t>(event.kind) << 8U | static_cast<std::uint64_t>(event.phase));
  }
  return hash;
}

std::vector<Bytes> sizes_of(const Trace& trace, const StepSpan& span) {
  std::vector<Bytes> sizes;
  sizes.reserve(span.last_block - span.first_block);
  for (std::size_t i = span.first_block; i < span.last_block; ++i) sizes.push_back(trace.blocks[i].requested);
  return sizes;
}

bool same_use(const Block& a, const Block& b) {
  return a.category == b.category && a.stream == b.stream && a.waits_for_streams == b.waits_for_streams;
}

/// Who asked for what a step left.
std::uint64_t requests_of_left(const Trace& trace, const StepSpan& span, const std::vector<BlockId>& left) {
  std::uint64_t hash = left.size();
  for (std::size_t i = span.first_event; i < span.last_event; ++i) {
    const Event& event = trace.events[i];
    if (event.kind != EventKind::kAllocate || !std::binary_search(left.begin(), left.end(), event.block)) continue;
    hash = mixed(hash, reinterpret_cast<std::uintptr_t>(event.op));
    hash = mixed(hash, reinterpret_cast<std::uintptr_t>(event.node));
  }
  return hash;
}

/// Who asked for each block of a step.
std::vector<const Event*> requests_of(const std::vector<Event>& events, std::size_t blocks) {
  std::vector<const Event*> requests(blocks);
  for (const Event& event : events) {
    if (event.kind == EventKind::kAllocate) requests[static_cast<std::size_t>(event.block)] = &event;
  }
  return requests;
}

}  // namespace

std::vector<Event> StepPatterns::numbered(const Trace& trace, const StepSpan& span,
                                          const std::vector<BlockId>& left_before) const {
  std::vector<Event> events(trace.events.begin() + static_cast<std::ptrdiff_t>(span.first_event),
                            trace.events.begin() + static_cast<std::ptrdiff_t>(span.last_event));
  std::size_t dropped = 0;
  for (Event& event : events) {
    if (event.block == kNoBlock) continue;
    if (static_cast<std::size_t>(event.block) >= span.first_block) {
      event.block -= static_cast<BlockId>(span.first_block);
      continue;
    }
    const auto found = std::lower_bound(left_before.begin(), left_before.end(), event.block);
    if (found == left_before.end() || *found != event.block) throw LayersDiffer();
    if (event.kind == EventKind::kFree) ++dropped;
    event.block = kOfEarlierStep - static_cast<BlockId>(found - left_before.begin());
  }
  if (dropped != left_before.size()) throw LayersDiffer();  // something stays
  return events;
}

std::uint64_t StepPatterns::key_of(const StepSpan& few) const { return mixed(order_of(few_, few), left_by_previous_); }

bool StepPatterns::knows(const StepSpan& few) const {
  if (steps_.size() < first_steps_) return false;
  const auto found = patterns_.find(key_of(few));
  return found != patterns_.end() && !found->second.told_by.empty();
}

void StepPatterns::tell(const StepSpan& few) {
  const Pattern& pattern = patterns_.at(key_of(few));
  steps_.push_back({few, &pattern});
  left_by_previous_ = pattern.left_by;
  ++told_;
}

void StepPatterns::learn(const StepSpan& whole, const StepSpan& few) {
  const bool is_first = steps_.size() < first_steps_;
  std::vector<BlockId> left = unfreed(whole_, whole);
  const std::uint64_t left_by = requests_of_left(whole_, whole, left);
  steps_.push_back({whole});
  if (is_first) {
    left_before_ = std::move(left);
    left_by_executed_ = left_by_previous_ = left_by;
    return;
  }
  if (left_by_executed_ != left_by_previous_) throw LayersDiffer();
  std::vector<Event> events = numbered(whole_, whole, left_before_);
  Pattern& pattern = patterns_[key_of(few)];
  std::vector<Bytes> sizes = sizes_of(whole_, whole), of_few = sizes_of(few_, few);
  if (pattern.sizes.empty()) {
    pattern.events = std::move(events);
    pattern.blocks.assign(whole_.blocks.begin() + static_cast<std::ptrdiff_t>(whole.first_block),
                          whole_.blocks.begin() + static_cast<std::ptrdiff_t>(whole.last_block));
    for (const BlockId each : left) pattern.left.push_back(each - static_cast<BlockId>(whole.first_block));
    pattern.events_of_few.assign(few_.events.begin() + static_cast<std::ptrdiff_t>(few.first_event),
                                 few_.events.begin() + static_cast<std::ptrdiff_t>(few.last_event));
    for (Event& event : pattern.events_of_few) event.block -= static_cast<BlockId>(few.first_block);
    pattern.left_by = left_by;
  } else {
    const bool same =
        std::equal(events.begin(), events.end(), pattern.events.begin(), pattern.events.end(), same_request) &&
        std::equal(pattern.blocks.begin(), pattern.blocks.end(),
                   whole_.blocks.begin() + static_cast<std::ptrdiff_t>(whole.first_block),
                   whole_.blocks.begin() + static_cast<std::ptrdiff_t>(whole.last_block), same_use);
    if (!same) throw LayersDiffer();
  }
  left_before_ = std::move(left);
  left_by_executed_ = left_by_previous_ = left_by;
  if (!pattern.told_by.empty()) {  // a test of what would have been told
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::int32_t by = pattern.told_by[i];
      if (sizes[i] != (by < 0 ? pattern.sizes.front()[i] : of_few[static_cast<std::size_t>(by)])) throw LayersDiffer();
    }
    return;
  }
  pattern.sizes.push_back(std::move(sizes));
  pattern.of_few.push_back(std::move(of_few));
  if (pattern.sizes.size() == kExamples) match(pattern);
}

/// A block is told by one that the same operator asked for, for the same use, in the same sizes at all examples. What
/// an optimizer takes for all parameters together has none, and does not depend on a batch.
void StepPatterns::match(Pattern& pattern) const {
  using Key = std::tuple<const Operator*, const Operator*, Phase, std::vector<Bytes>>;
  const auto key_of = [](const Event& request, std::size_t block, const std::vector<std::vector<Bytes>>& examples) {
    std::vector<Bytes> sizes;
    for (const std::vector<Bytes>& each : examples) sizes.push_back(each[block]);
    return Key{request.op, request.node, request.phase, std::move(sizes)};
  };
  std::map<Key, std::int32_t> tellers;
  const std::size_t blocks_of_few = pattern.of_few.front().size();
  const std::vector<const Event*> of_few = requests_of(pattern.events_of_few, blocks_of_few);
  for (std::size_t i = 0; i < blocks_of_few; ++i) {
    if (of_few[i] != nullptr) tellers.emplace(key_of(*of_few[i], i, pattern.of_few), static_cast<std::int32_t>(i));
  }
  const std::vector<const Event*> requests = requests_of(pattern.events, pattern.blocks.size());
  pattern.told_by.reserve(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (requests[i] == nullptr) throw LayersDiffer();
    const Key key = key_of(*requests[i], i, pattern.sizes);
    const auto found = tellers.find(key);
    const std::vector<Bytes>& sizes = std::get<3>(key);
    const bool is_constant = std::equal(sizes.begin() + 1, sizes.end(), sizes.begin());
    if (found == tellers.end() && !(is_constant && requests[i]->phase == Phase::kOptimizer)) throw LayersDiffer();
    pattern.told_by.push_back(found == tellers.end() ? -1 : found->second);
  }
}

Trace StepPatterns::composed() const {
  std::size_t events = whole_.events.size(), blocks = whole_.blocks.size();
  for (const Step& step : steps_) {
    if (step.told == nullptr) continue;
    events += step.told->events.size();
    blocks += step.told->blocks.size();
  }
  Trace trace;
  trace.events.reserve(events);
  trace.blocks.reserve(blocks);
  const StepSpan& before = steps_[first_steps_ - 1].span;
  trace.events.assign(whole_.events.begin(), whole_.events.begin() + static_cast<std::ptrdiff_t>(before.last_event));
  trace.blocks.assign(whole_.blocks.begin(), whole_.blocks.begin() + static_cast<std::ptrdiff_t>(before.last_block));
  std::vector<BlockId> left = unfreed(whole_, before), left_before;
  std::ptrdiff_t shift = 0;  // of the last executed step's blocks
  for (std::size_t i = first_steps_; i < steps_.size(); ++i) {
    const auto& [span, told] = steps_[i];
    const auto base = static_cast<BlockId>(trace.blocks.size());
    left_before = std::exchange(left, {});
    if (told != nullptr) {
      const Block* const of_few = few_.blocks.data() + span.first_block;
      for (std::size_t j = 0; j < told->blocks.size(); ++j) {
        Block block = told->blocks[j];
        if (told->told_by[j] >= 0) block.requested = of_few[told->told_by[j]].requested;
        trace.blocks.push_back(block);
      }
      for (Event event : told->events) {
        if (event.block >= 0) event.block += base;
        if (event.block <= kOfEarlierStep) {
          event.block = left_before[static_cast<std::size_t>(kOfEarlierStep - event.block)];
        }
        event.step = static_cast<std::int16_t>(i);
        trace.events.push_back(event);
      }
      for (const BlockId each : told->left) left.push_back(base + each);
      continue;
    }
    shift = static_cast<std::ptrdiff_t>(base) - static_cast<std::ptrdiff_t>(span.first_block);
    trace.blocks.insert(trace.blocks.end(), whole_.blocks.begin() + static_cast<std::ptrdiff_t>(span.first_block),
                        whole_.blocks.begin() + static_cast<std::ptrdiff_t>(span.last_block));
    std::size_t executed_before = i;
    while (steps_[--executed_before].told != nullptr) {
    }
    const std::vector<BlockId> executed_left = unfreed(whole_, steps_[executed_before].span);
    for (const Event& event : numbered(whole_, span, executed_left)) {
      Event copy = event;
      if (event.block >= 0) copy.block += base;
      if (event.block <= kOfEarlierStep) {
        copy.block = left_before[static_cast<std::size_t>(kOfEarlierStep - event.block)];
      }
      trace.events.push_back(copy);
    }
    for (const BlockId each : unfreed(whole_, span)) left.push_back(static_cast<BlockId>(each + shift));
  }
  // What comes after the last step.
  const StepSpan& last = steps_.back().span;
  trace.blocks.insert(trace.blocks.end(), whole_.blocks.begin() + static_cast<std::ptrdiff_t>(last.last_block),
                      whole_.blocks.end());
  for (std::size_t i = last.last_event; i < whole_.events.size(); ++i) {
    Event event = whole_.events[i];
    if (event.block != kNoBlock && static_cast<std::size_t>(event.block) >= last.first_block) {
      event.block += static_cast<BlockId>(shift);
    }
    trace.events.push_back(event);
  }
  return trace;
}

}  // namespace memcalc
