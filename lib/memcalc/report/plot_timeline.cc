// One step of a run as a stacked area: a position a pixel or so, at which the fullest instant of its events is shown.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/base/error.h"
#include "memcalc/report/assemble.h"
#include "memcalc/report/plot.h"
#include "memcalc/report/quantity.h"

namespace memcalc {
namespace {

constexpr std::size_t kPositions = 660;

using Shares = std::array<Bytes, kCategoryCount>;

/// What is handed out after each event of the last step.
class Instants {
 public:
  Instants(const Trace& trace, const ReplayResult& replayed) : trace_(trace), replayed_(replayed) {
    for (const Event& event : trace.events) last_step_ = std::max(last_step_, event.step);
    std::size_t first = 0;
    while (first < trace.events.size() && trace.events[first].step != last_step_) apply(first++);
    first_ = first;
  }

  void apply(std::size_t i) {
    const Event& event = trace_.events[i];
    if (event.kind == EventKind::kEmptyCache) return;
    const auto& block = trace_.blocks[static_cast<std::size_t>(event.block)];
    const Bytes size = replayed_.timeline[i].block_bytes;  // rounding and unsplit remainders belong to their block
    shares_[static_cast<std::size_t>(block.category)] += event.kind == EventKind::kAllocate ? size : -size;
  }

  [[nodiscard]] std::size_t first() const { return first_; }
  [[nodiscard]] const Shares& shares() const { return shares_; }

 private:
  const Trace& trace_;
  const ReplayResult& replayed_;
  std::int16_t last_step_ = 0;
  std::size_t first_ = 0;
  Shares shares_{};
};

std::string words_of(std::string_view name) {
  std::string words(name);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

}  // namespace

std::string plot_timeline(const Trace& trace, const ReplayResult& replayed, const std::string& title) {
  if (replayed.timeline.size() != trace.events.size()) {
    throw Error(ErrorCode::kInternal, "plot_timeline: the replay has no timeline of this trace");
  }
  Instants instants(trace, replayed);
  const std::size_t first = instants.first();
  const std::size_t count = trace.events.size() - first;
  const std::size_t positions = std::max<std::size_t>(1, std::min(count, kPositions));
  std::vector<Shares> fullest(positions);
  std::vector<Bytes> heights(positions, -1);
  StackedPlot plot{.title = title, .x_label = "allocations and frees of one step, in order"};
  Bytes peak = -1;
  for (std::size_t i = first; i < trace.events.size(); ++i) {
    instants.apply(i);
    const std::size_t position = (i - first) * positions / count;
    const Bytes allocated = replayed.timeline[i].allocated;
    if (allocated > heights[position]) {
      heights[position] = allocated;
      fullest[position] = instants.shares();
    }
    if (allocated > peak) {
      peak = allocated;
      plot.marked = position;
      plot.marked_label = "peak " + format_bytes(peak);
      plot.subtitle = plot.marked_label + " in " + chain_of(trace.events[i]);
    }
    const std::string name(name_of(trace.events[i].phase));
    if (plot.spans.empty() || plot.spans.back().name != name) plot.spans.push_back({name, position, position});
    plot.spans.back().last = position;
  }
  for (std::size_t k = 0; k < kCategoryCount; ++k) {
    PlotLayer layer{words_of(name_of(static_cast<Category>(k))), {}};
    for (const Shares& shares : fullest) layer.bytes.push_back(shares[k]);
    plot.layers.push_back(std::move(layer));
  }
  return stacked_areas(plot);
}

}  // namespace memcalc
