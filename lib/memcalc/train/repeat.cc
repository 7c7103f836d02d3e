#include "memcalc/train/repeat.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace memcalc {

bool repeat_step(Trace& trace, const StepMark& start) {
  const std::size_t end_event = trace.events.size();
  const std::size_t end_block = trace.blocks.size();
  const std::size_t count = end_block - start.block;
  std::vector<std::int32_t> inherited;
  std::vector<bool> alive(count, true);
  for (std::size_t i = start.event; i < end_event; ++i) {
    const Event& event = trace.events[i];
    if (event.kind != EventKind::kFree) continue;
    const auto block = static_cast<std::size_t>(event.block);
    if (block < start.block) {
      inherited.push_back(event.block);
    } else {
      alive[block - start.block] = false;
    }
  }
  std::sort(inherited.begin(), inherited.end());
  std::vector<std::int32_t> left;
  for (std::size_t i = 0; i < count; ++i) {
    if (alive[i]) left.push_back(static_cast<std::int32_t>(start.block + i));
  }
  const auto bytes = [&](std::int32_t block) { return trace.blocks[static_cast<std::size_t>(block)].requested; };
  if (!std::equal(inherited.begin(), inherited.end(), left.begin(), left.end(),
                  [&](std::int32_t a, std::int32_t b) { return bytes(a) == bytes(b); })) {
    return false;
  }

  trace.events.reserve(end_event + (end_event - start.event));
  trace.blocks.reserve(end_block + count);
  for (std::size_t i = start.block; i < end_block; ++i) trace.blocks.push_back(trace.blocks[i]);
  for (std::size_t i = start.event; i < end_event; ++i) {
    Event event = trace.events[i];
    ++event.step;
    if (static_cast<std::size_t>(event.block) >= start.block) {
      event.block += static_cast<std::int32_t>(count);
    } else {
      const auto place = std::lower_bound(inherited.begin(), inherited.end(), event.block) - inherited.begin();
      event.block = left[static_cast<std::size_t>(place)];
    }
    trace.events.push_back(event);
  }
  return true;
}

}  // namespace memcalc
