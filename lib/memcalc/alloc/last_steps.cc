#include "memcalc/alloc/last_steps.h"

#include <algorithm>
#include <span>

namespace memcalc {
namespace {

bool is_same_request(const Block& a, const Block& b) {
  return a.requested == b.requested && a.category == b.category && a.stream == b.stream && !a.waits_for_streams &&
         !b.waits_for_streams;
}

// Steps number their blocks upwards, so the first that is allocated has the least number.
std::optional<std::int32_t> first_block(std::span<const Event> step) {
  const auto found =
      std::find_if(step.begin(), step.end(), [](const Event& event) { return event.kind == EventKind::kAllocate; });
  if (found == step.end()) return std::nullopt;
  return found->block;
}

}  // namespace

std::optional<LastSteps> last_steps(const Trace& trace) {
  const std::span<const Event> events(trace.events);
  if (events.empty() || events.back().step < 2) return std::nullopt;
  const auto start_of = [&](int step) {
    const auto found =
        std::partition_point(events.begin(), events.end(), [step](const Event& event) { return event.step < step; });
    return static_cast<std::size_t>(found - events.begin());
  };
  LastSteps steps{.before_last = start_of(events.back().step - 1), .last = start_of(events.back().step)};
  const std::size_t count = events.size() - steps.last;
  if (steps.last - steps.before_last != count) return std::nullopt;
  const std::span<const Event> one = events.subspan(steps.before_last, count);
  const std::optional<std::int32_t> own = first_block(one);
  const std::optional<std::int32_t> next = first_block(events.subspan(steps.last));
  if (!own || !next) return std::nullopt;
  steps.block_shift = *next - *own;
  for (const Event& event : one) {
    if (event.block >= *own) continue;
    if (event.block + steps.block_shift < *own) return std::nullopt;  // older than the step before
    steps.carried.push_back(event.block);
  }
  return steps;
}

bool ask_alike(const Trace& trace, const LastSteps& steps) {
  const Event* const one = trace.events.data() + steps.before_last;
  const Event* const other = trace.events.data() + steps.last;
  const std::size_t count = trace.events.size() - steps.last;
  const auto is_block = [&](std::int32_t block) { return static_cast<std::size_t>(block) < trace.blocks.size(); };
  std::size_t allocated = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!one[i].moves_block() || one[i].kind != other[i].kind || one[i].phase != other[i].phase) return false;
    if (other[i].block - one[i].block != steps.block_shift || !is_block(one[i].block) || !is_block(other[i].block)) {
      return false;
    }
    if (!is_same_request(trace.blocks[static_cast<std::size_t>(one[i].block)],
                         trace.blocks[static_cast<std::size_t>(other[i].block)])) {
      return false;
    }
    allocated += one[i].kind == EventKind::kAllocate ? 1 : 0;
  }
  return 2 * allocated == count;
}

}  // namespace memcalc
