#include "memcalc/plan/sweep.h"

#include <algorithm>
#include <utility>

#include "memcalc/report/plot.h"
#include "memcalc/report/quantity.h"

namespace memcalc {
namespace {

/// Columns of the varied options, then of what the command adds.
std::vector<Column> columns_of(const Sweep& swept, const std::vector<Column>& more) {
  std::vector<Column> columns;
  for (const std::string& name : swept.varied) columns.push_back({key_of_option(name), name, Unit::kText});
  columns.insert(columns.end(), more.begin(), more.end());
  return columns;
}

std::vector<Value> values_of(const SweepPoint& point) { return {point.values.begin(), point.values.end()}; }

Value speed_value(const Outcome& outcome, double Speed::*member) {
  if (!outcome.speed || (*outcome.speed).*member == 0) return std::monostate{};
  return (*outcome.speed).*member;
}

Value value_of(std::optional<double> number) {
  Value value;
  if (number) value = *number;
  return value;
}

/// Each reason once, with how many points it concerns.
void note_refusals(const Sweep& swept, Answer& answer) {
  std::vector<std::pair<std::string, std::size_t>> reasons;
  for (const SweepPoint& point : swept.points) {
    if (point.outcome.answered()) continue;
    const auto known = std::find_if(reasons.begin(), reasons.end(),
                                    [&](const auto& reason) { return reason.first == point.outcome.refusal; });
    known == reasons.end() ? reasons.emplace_back(point.outcome.refusal, 1)
                           : * known = {known->first, known->second + 1};
  }
  constexpr std::size_t kListed = 4;
  for (std::size_t i = 0; i < reasons.size(); ++i) {
    if (i == kListed) {
      answer.notes.push_back("and " + std::to_string(reasons.size() - kListed) +
                             (reasons.size() == kListed + 1 ? " reason" : " reasons") + " more: --format csv has all");
      break;
    }
    const auto& [reason, count] = reasons[i];
    answer.notes.push_back("no estimate of " + std::to_string(count) + (count == 1 ? " point: " : " points: ") +
                           reason);
  }
  if (!swept.complete) answer.notes.emplace_back("stopped early: the points that were reached");
}

std::size_t count_of_fitting(const Sweep& swept) {
  return static_cast<std::size_t>(
      std::count_if(swept.points.begin(), swept.points.end(), [](const SweepPoint& p) { return p.outcome.fits(); }));
}

/// What all points that have a name share; empty: they are of several.
std::string only_name(const Sweep& swept, const std::string& (*name_of_point)(const SweepPoint&)) {
  std::string only;
  for (const SweepPoint& point : swept.points) {
    const std::string& name = name_of_point(point);
    if (name.empty() || name == only) continue;
    if (!only.empty()) return "";
    only = name;
  }
  return only;
}
std::string only_model(const Sweep& swept) {
  return only_name(swept, [](const SweepPoint& point) -> const std::string& { return point.model; });
}
std::string only_card(const Sweep& swept) {
  return only_name(swept, [](const SweepPoint& point) -> const std::string& { return point.device.name; });
}

/// " of gpt2"; nothing where the points are of several models, whose labels name them.
std::string model_words(const Sweep& swept) {
  const std::string name = only_model(swept);
  return name.empty() ? "" : " of " + name;
}

std::string share_name(std::size_t category) {
  std::string name(name_of(static_cast<Category>(category)));
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

}  // namespace

Sweep sweep(const std::vector<std::string>& varied, const std::vector<SweepQuestion>& questions,
            const SearchControl& control) {
  std::vector<std::optional<Outcome>> outcomes(questions.size());
  Sweep swept{.varied = varied};
  swept.complete = for_each_index(questions.size(), control, [&](std::size_t i) {
    const SweepQuestion& question = questions[i];
    Outcome& outcome = outcomes[i].emplace();
    if (question.candidate) {
      outcome = outcome_of(*question.candidate);
    } else {
      outcome.refusal = question.refusal.reason;
      outcome.own_fault = question.refusal.own_fault;
    }
  });
  for (std::size_t i = 0; i < questions.size(); ++i) {
    if (!outcomes[i]) continue;
    SweepPoint point{.values = questions[i].values, .outcome = *std::move(outcomes[i])};
    for (std::size_t k = 0; k < std::min(varied.size(), point.values.size()); ++k) {  // as asked for, where refused
      if (varied[k] == "model") point.model = point.values[k];
      if (varied[k] == "gpu") point.device.name = point.values[k];
    }
    if (questions[i].candidate) {
      point.model = questions[i].candidate->model.name;
      point.device = questions[i].candidate->device;
      point.gpus = questions[i].candidate->run.parallel.gpus;
    }
    swept.points.push_back(std::move(point));
  }
  return swept;
}

std::size_t Sweep::own_faults() const {
  return static_cast<std::size_t>(
      std::count_if(points.begin(), points.end(), [](const SweepPoint& p) { return p.outcome.own_fault; }));
}

Answer answer_of(const Sweep& swept) {
  Answer answer;
  answer.command = "sweep";
  answer.complete = swept.complete;
  answer.positive = count_of_fitting(swept) > 0;
  const std::size_t fitting = count_of_fitting(swept);
  const std::string card = only_card(swept);
  answer.headline = std::to_string(fitting) + " of " + std::to_string(swept.points.size()) +
                    (swept.points.size() == 1 ? " point" : " points") + (fitting == 1 ? " fits" : " fit") +
                    (card.empty() ? "" : " on " + card) + ".";
  std::vector<Column> more = {{"allocated_bytes", "allocated", Unit::kBytes},
                              {"reserved_bytes", "reserved", Unit::kBytes},
                              {"needed_bytes", "needed", Unit::kBytes},
                              {"verdict", "fits", Unit::kVerdict},
                              {"step_seconds", "step", Unit::kSeconds},
                              {"tokens_per_second", "tokens/s", Unit::kRate, true},
                              {"samples_per_second", "samples/s", Unit::kRate, true},
                              {"mfu", "MFU", Unit::kShare, true}};
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    more.push_back({std::string(name_of(static_cast<Category>(i))) + "_bytes", share_name(i), Unit::kBytes, true});
  }
  more.push_back({"allocator_slack_bytes", "slack", Unit::kBytes, true});
  more.push_back({"refusal", "why not", Unit::kText, true});
  answer.columns = columns_of(swept, more);
  for (const SweepPoint& point : swept.points) {
    std::vector<Value> row = values_of(point);
    const Outcome& outcome = point.outcome;
    if (outcome.answered()) {
      row.insert(row.end(),
                 {outcome.allocated, outcome.reserved, outcome.needed, std::string(name_of(outcome.verdict)),
                  speed_value(outcome, &Speed::step_seconds), speed_value(outcome, &Speed::tokens_per_second),
                  speed_value(outcome, &Speed::samples_per_second), speed_value(outcome, &Speed::mfu)});
      for (const Bytes bytes : outcome.categories) row.emplace_back(bytes);
      row.emplace_back(outcome.slack);
    }
    row.resize(answer.columns.size());
    if (!outcome.answered()) row.back() = outcome.refusal;
    answer.rows.push_back(std::move(row));
  }
  note_refusals(swept, answer);
  return answer;
}

std::optional<double> dollars_per_billion_tokens(const Outcome& outcome, std::int64_t gpus,
                                                 std::optional<double> dollars_per_gpu_hour) {
  if (!dollars_per_gpu_hour || !outcome.speed || outcome.speed->tokens_per_second <= 0) return std::nullopt;
  const double hours = 1e9 / outcome.speed->tokens_per_second / 3600;
  return hours * static_cast<double>(gpus) * *dollars_per_gpu_hour;
}

Answer comparison_of(const Sweep& swept, const Prices& prices) {
  Answer answer;
  answer.command = "compare";
  answer.complete = swept.complete;
  answer.positive = count_of_fitting(swept) > 0;
  const std::string model = only_model(swept);
  answer.headline = (model.empty() ? "" : model + ": ") + std::to_string(count_of_fitting(swept)) + " of " +
                    std::to_string(swept.points.size()) + " fit.";
  Sweep others = swept;  // the model and the card have columns of their own
  std::erase_if(others.varied, [](const std::string& name) { return name == "model" || name == "gpu"; });
  answer.columns = columns_of(others, {{"memory_bytes", "memory", Unit::kBytes, true},
                                       {"needed_bytes", "needed", Unit::kBytes},
                                       {"headroom_bytes", "headroom", Unit::kBytes, true},
                                       {"verdict", "fits", Unit::kVerdict},
                                       {"step_seconds", "step", Unit::kSeconds},
                                       {"tokens_per_second", "tokens/s", Unit::kRate, true},
                                       {"mfu", "MFU", Unit::kShare, true},
                                       {"dollars_per_gpu_hour", "$/GPU h", Unit::kDollars, true},
                                       {"dollars_per_billion_tokens", "$/1e9 tokens", Unit::kDollars}});
  answer.columns.insert(answer.columns.begin(),
                        {{"model", "model", Unit::kText, !model.empty()}, {"gpu", "card", Unit::kText}});
  bool priced = false;
  for (const SweepPoint& point : swept.points) {
    const Outcome& outcome = point.outcome;
    std::vector<Value> row = {point.model, point.device.name};
    for (std::size_t i = 0; i < swept.varied.size(); ++i) {
      if (swept.varied[i] != "model" && swept.varied[i] != "gpu") row.emplace_back(point.values[i]);
    }
    if (outcome.answered()) {
      const std::optional<double> price = prices.of(point.device.name);
      const auto dollars = dollars_per_billion_tokens(outcome, point.gpus, price);
      priced = priced || dollars;
      row.insert(row.end(),
                 {point.device.memory_bytes, outcome.needed, outcome.headroom, std::string(name_of(outcome.verdict))});
      // What does not fit has no time.
      for (const auto member : {&Speed::step_seconds, &Speed::tokens_per_second, &Speed::mfu}) {
        row.push_back(outcome.fits() ? speed_value(outcome, member) : Value());
      }
      row.push_back(value_of(price));
      row.push_back(outcome.fits() ? value_of(dollars) : Value());
    }
    row.resize(answer.columns.size());
    answer.rows.push_back(std::move(row));
  }
  if (priced) answer.notes.push_back("prices: " + prices.note + " (--price)");
  note_refusals(swept, answer);
  return answer;
}

Answer largest_model_of(const Sweep& swept) {
  Answer answer;
  answer.command = "max-model";
  answer.complete = swept.complete;
  const SweepPoint* largest = nullptr;
  for (const SweepPoint& point : swept.points) {
    if (point.outcome.fits() && (largest == nullptr || point.parameters >= largest->parameters)) largest = &point;
  }
  answer.positive = largest != nullptr;
  // A model that is refused before its card is looked at has none.
  const auto carded = std::find_if(swept.points.begin(), swept.points.end(),
                                   [](const SweepPoint& point) { return !point.device.name.empty(); });
  const std::string card = carded == swept.points.end() ? "the card" : carded->device.name;
  answer.headline = largest == nullptr
                        ? "None of " + std::to_string(swept.points.size()) + " models fits on " + card + "."
                        : "Largest model on " + card + ": " + largest->model + ".";
  if (largest != nullptr) {
    answer.facts = {{"model", "model", Unit::kText, largest->model},
                    {"parameters", "parameters", Unit::kCount, largest->parameters}};
  }
  answer.columns = {{"model", "model", Unit::kText},          {"parameters", "parameters", Unit::kCount},
                    {"needed_bytes", "needed", Unit::kBytes}, {"headroom_bytes", "headroom", Unit::kBytes},
                    {"verdict", "fits", Unit::kVerdict},      {"step_seconds", "step", Unit::kSeconds, true}};
  for (const SweepPoint& point : swept.points) {
    std::vector<Value> row = {point.values.front(), point.parameters};
    if (point.outcome.answered()) {
      row.insert(row.end(), {point.outcome.needed, point.outcome.headroom, std::string(name_of(point.outcome.verdict)),
                             speed_value(point.outcome, &Speed::step_seconds)});
    }
    row.resize(answer.columns.size());
    answer.rows.push_back(std::move(row));
  }
  note_refusals(swept, answer);
  return answer;
}

std::string plot_of(const Sweep& swept) {
  StackedPlot plot{.title = "Memory at the peak, by category" + model_words(swept)};
  for (const std::string& name : swept.varied) plot.x_label += (plot.x_label.empty() ? "" : ", ") + name;
  for (std::size_t i = 0; i < kCategoryCount; ++i) plot.layers.push_back({share_name(i), {}});
  plot.layers.push_back({"allocator slack", {}, false});
  plot.layers.push_back({"reserved, not handed out", {}, false});
  plot.layers.push_back({"context and kernels", {}, false});
  for (const SweepPoint& point : swept.points) {
    std::string label;
    for (const std::string& value : point.values) label += (label.empty() ? "" : " ") + value;
    plot.labels.push_back(label.empty() ? point.model : label);
    const Outcome& outcome = point.outcome;
    for (std::size_t i = 0; i < kCategoryCount; ++i) plot.layers[i].bytes.push_back(outcome.categories[i]);
    plot.layers[kCategoryCount].bytes.push_back(outcome.slack);
    plot.layers[kCategoryCount + 1].bytes.push_back(outcome.reserved - outcome.allocated);
    plot.layers[kCategoryCount + 2].bytes.push_back(outcome.needed - outcome.reserved);
    if (!plot.limit) plot.limit = point.device.usable_bytes();
    if (plot.limit != point.device.usable_bytes()) plot.limit = 0;  // several cards: no one line
    plot.limit_label = point.device.name + ", " + format_bytes(point.device.usable_bytes());
  }
  if (plot.limit == 0) plot.limit.reset();
  return stacked_bars(plot);
}

}  // namespace memcalc
