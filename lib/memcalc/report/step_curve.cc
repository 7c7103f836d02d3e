#include "memcalc/report/step_curve.h"

#include <algorithm>

#include "memcalc/base/error.h"
#include "memcalc/report/assemble.h"

namespace memcalc {
namespace {

/// What is handed out after each event, from the first event of the last step on.
class Instants {
 public:
  Instants(const Trace& trace, const ReplayResult& replayed) : trace_(trace), replayed_(replayed) {
    for (const Event& event : trace.events) last_step_ = std::max(last_step_, event.step);
    while (first_ < trace.events.size() && trace.events[first_].step != last_step_) apply(first_++);
  }

  void apply(std::size_t i) {
    const Event& event = trace_.events[i];
    if (event.kind == EventKind::kEmptyCache) return;
    const auto& block = trace_.blocks[static_cast<std::size_t>(event.block)];
    const Bytes size = replayed_.timeline[i].block_bytes;  // rounding and unsplit remainders belong to their block
    bytes_[static_cast<std::size_t>(block.category)] += event.kind == EventKind::kAllocate ? size : -size;
  }

  [[nodiscard]] int step() const { return last_step_; }
  [[nodiscard]] std::size_t first() const { return first_; }
  [[nodiscard]] const std::array<Bytes, kCategoryCount>& bytes() const { return bytes_; }

 private:
  const Trace& trace_;
  const ReplayResult& replayed_;
  std::int16_t last_step_ = 0;
  std::size_t first_ = 0;
  std::array<Bytes, kCategoryCount> bytes_{};
};

}  // namespace

StepCurve step_curve(const Trace& trace, const ReplayResult& replayed, std::size_t most_points) {
  if (replayed.timeline.size() != trace.events.size()) {
    throw Error(ErrorCode::kInternal, "step_curve: the replay has no timeline of this trace");
  }
  Instants instants(trace, replayed);
  const std::size_t first = instants.first();
  StepCurve curve{.step = instants.step(), .events = trace.events.size() - first};
  if (curve.events == 0) return curve;
  curve.points.resize(std::clamp<std::size_t>(most_points, 1, curve.events));
  std::vector<std::size_t> fullest(curve.points.size(), trace.events.size());
  for (std::size_t i = first; i < trace.events.size(); ++i) {
    instants.apply(i);
    const TimelinePoint& now = replayed.timeline[i];
    const std::size_t place = (i - first) * curve.points.size() / curve.events;
    CurvePoint& point = curve.points[place];
    point.reserved = std::max(point.reserved, now.reserved);
    const Phase phase = trace.events[i].phase;
    if (curve.phases.empty() || curve.phases.back().phase != phase) curve.phases.push_back({phase, place, place});
    curve.phases.back().last = place;
    if (fullest[place] < trace.events.size() && now.allocated <= point.allocated) continue;
    fullest[place] = i;
    point.allocated = now.allocated;
    point.bytes = instants.bytes();
    if (point.allocated > curve.points[curve.peak].allocated) curve.peak = place;
  }
  for (std::size_t place = 0; place < curve.points.size(); ++place) {
    curve.points[place].operator_chain = chain_of(trace.events[fullest[place]]);
  }
  return curve;
}

}  // namespace memcalc
