// Many runs side by side: memory over the values of some options (sweep), models on cards with what they cost
// (compare), the largest model of a family (max-model). Covered by tests/unit/sweep_test.cc.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/plan/outcome.h"
#include "memcalc/plan/search_control.h"
#include "memcalc/report/answer.h"
#include "memcalc/spec/prices.h"

namespace memcalc {

struct SweepPoint {
  std::vector<std::string> values;  // of the varied options
  std::string model;
  DeviceSpec device;
  std::int64_t gpus = 1;
  std::int64_t parameters = 0;
  Outcome outcome;
};

struct Sweep {
  std::vector<std::string> varied;  // names of options, as on the command line: "bs", "kv-heads"
  std::vector<SweepPoint> points;
  bool complete = true;  // false: stopped; the points that were reached
  /// Points that ended in a bug of memcalc.
  [[nodiscard]] std::size_t own_faults() const;
};

/// What was asked of one point: its values, and the run that they lead to or why there is none.
struct SweepQuestion {
  std::vector<std::string> values;
  std::optional<Candidate> candidate;
  Refusal refusal;
};

[[nodiscard]] Sweep sweep(const std::vector<std::string>& varied, const std::vector<SweepQuestion>& questions,
                          const SearchControl& control = {});

/// The command sweep: a row a point.
[[nodiscard]] Answer answer_of(const Sweep& swept);

/// The command compare: fit, headroom, time, and dollars for a billion tokens.
[[nodiscard]] Answer comparison_of(const Sweep& swept, const Prices& prices);

/// The command max-model: the largest of the points that fits. Pre: a point a model.
[[nodiscard]] Answer largest_model_of(const Sweep& swept);

/// Memory at the peak by category, a stacked bar a point: an SVG document.
[[nodiscard]] std::string plot_of(const Sweep& swept);

/// Dollars for a billion tokens, all GPUs of the run together; nothing where the speed or the price is not known.
[[nodiscard]] std::optional<double> dollars_per_billion_tokens(const Outcome& outcome, std::int64_t gpus,
                                                               std::optional<double> dollars_per_gpu_hour);

}  // namespace memcalc
