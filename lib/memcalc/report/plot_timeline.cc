// One step of a run as a stacked area: a position a pixel or so.
#include <algorithm>
#include <string>
#include <utility>

#include "memcalc/report/plot.h"
#include "memcalc/report/quantity.h"

namespace memcalc {
namespace {

constexpr std::size_t kPositions = 660;

std::string words_of(std::string_view name) {
  std::string words(name);
  std::replace(words.begin(), words.end(), '_', ' ');
  return words;
}

}  // namespace

std::string plot_timeline(const Trace& trace, const ReplayResult& replayed, const std::string& title) {
  return plot_curve(step_curve(trace, replayed, kPositions), title);
}

std::string plot_curve(const StepCurve& curve, const std::string& title) {
  StackedPlot plot{.title = title, .x_label = "allocations and frees of one step, in order"};
  if (!curve.points.empty()) {
    const CurvePoint& peak = curve.points[curve.peak];
    plot.marked = curve.peak;
    plot.marked_label = "peak " + format_bytes(peak.allocated);
    plot.subtitle = plot.marked_label + " in " + peak.operator_chain;
  }
  for (const CurvePhase& each : curve.phases) {
    plot.spans.push_back({std::string(name_of(each.phase)), each.first, each.last});
  }
  for (std::size_t k = 0; k < kCategoryCount; ++k) {
    PlotLayer layer{words_of(name_of(static_cast<Category>(k))), {}};
    for (const CurvePoint& point : curve.points) layer.bytes.push_back(point.bytes[k]);
    plot.layers.push_back(std::move(layer));
  }
  return stacked_areas(plot);
}

}  // namespace memcalc
