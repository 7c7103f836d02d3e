// Stacked bars and areas as SVG documents: memory by category over some runs, or over one step.
// Covered by tests/unit/sweep_test.cc; looked at as pictures.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/alloc/replay.h"
#include "memcalc/base/bytes.h"
#include "memcalc/report/step_curve.h"
#include "memcalc/symbolic/trace.h"

namespace memcalc {

/// One colour, from the bottom up.
struct PlotLayer {
  std::string name;
  std::vector<Bytes> bytes;  // one for each position on the horizontal axis
  bool is_tensors = true;    // otherwise a grey
};

/// A name over a stretch of positions: "forward", "backward".
struct PlotSpan {
  std::string name;
  std::size_t first = 0;
  std::size_t last = 0;
};

struct StackedPlot {
  std::string title;
  std::string subtitle;
  std::string x_label;
  std::vector<std::string> labels;  // bars: one a position
  std::vector<PlotLayer> layers;
  std::optional<Bytes> limit;  // a line across: the card's memory
  std::string limit_label;
  std::vector<PlotSpan> spans;        // areas
  std::optional<std::size_t> marked;  // areas: the position of the peak
  std::string marked_label;
};

[[nodiscard]] std::string stacked_bars(const StackedPlot& plot);
[[nodiscard]] std::string stacked_areas(const StackedPlot& plot);

/// The last step of a run, block by block: what is handed out by category, the peak marked. Pre: `replayed` is the
/// replay of `trace` with record_timeline set; throws Error(kInternal) otherwise.
[[nodiscard]] std::string plot_timeline(const Trace& trace, const ReplayResult& replayed, const std::string& title);
[[nodiscard]] std::string plot_curve(const StepCurve& curve, const std::string& title);

}  // namespace memcalc
