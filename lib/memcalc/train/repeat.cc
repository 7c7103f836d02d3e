#include "memcalc/train/repeat.h"

#include <algorithm>

namespace memcalc {

namespace {

enum class Fate : std::uint8_t { kTransient, kCarried, kPermanent };

}  // namespace

void repeat_step(Trace& trace, std::size_t first_event, std::size_t first_block, const CarriedVariables& carried,
                 int copies) {
  const std::vector<Event> step(trace.events.begin() + static_cast<std::ptrdiff_t>(first_event), trace.events.end());
  const std::size_t count = trace.blocks.size() - first_block;
  const auto& pairs = carried.pairs();
  const BlockId first_placeholder = pairs.empty() ? kNoBlock : pairs.front().first;
  const auto is_placeholder = [&](BlockId block) {
    return !pairs.empty() && block >= first_placeholder && block <= pairs.back().first;
  };

  // What was allocated in the step and not freed stays for good, unless a variable carries it over.
  std::vector<Fate> fates(count, Fate::kPermanent);
  const auto fate = [&](BlockId block) -> Fate& { return fates[static_cast<std::size_t>(block) - first_block]; };
  for (const Event& event : step) {
    if (event.kind == EventKind::kFree && static_cast<std::size_t>(event.block) >= first_block) {
      fate(event.block) = Fate::kTransient;
    }
  }
  for (const auto& [placeholder, left] : pairs) {
    if (left != kNoBlock) fate(left) = Fate::kCarried;
  }

  trace.events.resize(first_event);
  trace.events.reserve(first_event + step.size() * static_cast<std::size_t>(copies + 1));
  trace.blocks.reserve(trace.blocks.size() + count * static_cast<std::size_t>(copies));
  for (const Event& event : step) {
    if (!is_placeholder(event.block)) trace.events.push_back(event);
  }
  for (int copy = 1; copy <= copies; ++copy) {
    for (std::size_t i = 0; i < count; ++i) trace.blocks.push_back(trace.blocks[first_block + i]);
    const auto offset = static_cast<BlockId>(count * static_cast<std::size_t>(copy));
    for (Event event : step) {
      if (is_placeholder(event.block)) {
        const BlockId left = pairs[static_cast<std::size_t>(event.block - first_placeholder)].second;
        if (left == kNoBlock) continue;
        event.block = left + offset - static_cast<BlockId>(count);
      } else {
        if (fate(event.block) == Fate::kPermanent) continue;
        event.block += offset;
      }
      event.step = static_cast<std::int16_t>(event.step + copy);
      trace.events.push_back(event);
    }
  }
}

}  // namespace memcalc
