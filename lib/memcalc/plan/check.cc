#include "memcalc/plan/check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

#include "memcalc/memcalc.h"
#include "memcalc/plan/measured_row.h"
#include "memcalc/report/quantity.h"
#include "memcalc/spec/json_node.h"
#include "memcalc/spec/json_reader.h"
#include "memcalc/spec/prediction_errors.h"

namespace memcalc {

namespace {

/// What memcalc says of a run.
struct Prediction {
  JsonNode run;
  std::string gpu;
  std::string kind;
  CheckedFigures whole;
  bool host_bound = false;
  std::vector<RankRow> ranks{};  // of several GPUs
};

class Checker {
 public:
  Checker(const SpecRegistry& registry, const std::string& models) : registry_(registry) {
    if (!models.empty()) configs_ = NamedConfigs(JsonDocument::parse(models, "the models"));
  }

  [[nodiscard]] CheckedRow row(const JsonObject& json) {
    CheckedRow row{.id = json.required_string("id")};
    row.measured.peak_allocated = json.optional_int("peak_allocated");
    row.measured.peak_reserved = json.optional_int("peak_reserved");
    if (const auto step = json.optional_double("step_ms_median")) row.measured.step_seconds = *step * 1e-3;
    if (!json.has("run")) throw json.error("", "no measured row: it has no \"run\", the record of what ran");
    try {
      if (const auto reason = json.optional_string("not_modelled")) throw Error(ErrorCode::kUnsupported, *reason);
      tell(prediction_of(json), json.optional_int("rank"), row);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      row.refused = error.what();
    }
    return row;
  }

 private:
  /// Each rank of a run is a row: the run is asked about once.
  [[nodiscard]] const Prediction& prediction_of(const JsonObject& row) {
    const JsonNode& run = row.required_object("run").node();
    const std::string gpu = row.optional_string("gpu").value_or("");
    const auto known = std::find_if(predictions_.begin(), predictions_.end(),
                                    [&](const Prediction& each) { return each.gpu == gpu && each.run == run; });
    if (known != predictions_.end()) return *known;
    const Question question = question_of(request_of_row(row), registry_, configs_);
    Report report = estimate(question.model, question.run, question.device);
    Prediction said{.run = run, .gpu = gpu};
    said.kind = kRunKindNames[static_cast<std::size_t>(kind_of(report.model, report.run))];
    said.whole = {.peak_allocated = report.memory.peak_allocated, .peak_reserved = report.memory.peak_reserved};
    said.ranks = std::move(report.ranks);
    if (report.time) {
      said.whole.step_seconds = report.time->step.step_seconds;
      said.host_bound = report.time->step.host_bound();
    }
    return predictions_.emplace_back(std::move(said));
  }

  static void tell(const Prediction& said, const std::optional<std::int64_t>& rank, CheckedRow& row) {
    row.kind = said.kind;
    row.predicted = said.whole;
    row.host_bound = said.host_bound;
    for (const RankRow& each : said.ranks) {
      if (each.first != rank) continue;
      row.predicted.peak_allocated = each.peak_allocated;
      row.predicted.peak_reserved = each.peak_reserved;
    }
  }

  const SpecRegistry& registry_;
  NamedConfigs configs_;
  std::vector<Prediction> predictions_{};
};

// Relative error; nothing where one of the two is missing.
template <typename Number>
std::optional<double> error_of(const std::optional<Number>& predicted, const std::optional<Number>& measured) {
  if (!predicted || !measured || *measured == 0) return std::nullopt;
  return static_cast<double>(*predicted) / static_cast<double>(*measured) - 1;
}

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const auto at = static_cast<std::size_t>(share * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

struct Errors {
  std::vector<double> sizes;
  std::size_t below = 0;  // predicted less than was measured
  std::size_t exact = 0;

  void add(const std::optional<double>& error) {
    if (!error) return;
    sizes.push_back(std::abs(*error));
    below += *error < 0 ? 1 : 0;
    exact += *error == 0 ? 1 : 0;
  }

  void tell(const std::string& key, const std::string& label, Answer& answer) const {
    if (sizes.empty()) return;
    const auto rows = static_cast<double>(sizes.size());
    answer.facts.push_back({key + "_median_error", label + ", median error", Unit::kShare, quantile(sizes, 0.5)});
    answer.facts.push_back({key + "_p90_error", label + ", p90 error", Unit::kShare, quantile(sizes, 0.9)});
    answer.facts.push_back(
        {key + "_under_predicted", label + ", under-predicted", Unit::kShare, static_cast<double>(below) / rows});
    if (key != "step") {
      answer.facts.push_back(
          {key + "_exact", label + ", right to the byte", Unit::kCount, static_cast<std::int64_t>(exact)});
    }
  }
};

Value value_of(const std::optional<Bytes>& bytes) { return bytes ? Value(*bytes) : Value(); }
Value value_of(const std::optional<double>& number) { return number ? Value(*number) : Value(); }

}  // namespace

std::vector<CheckedRow> check_rows(const SpecRegistry& registry, const std::string& rows, const std::string& name,
                                   const std::string& models) {
  Checker checker(registry, models);
  std::vector<CheckedRow> checked;
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < rows.size();) {
    const std::size_t end = std::min(rows.find('\n', begin), rows.size());
    const std::string_view text = std::string_view(rows).substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const JsonDocument document = JsonDocument::parse(text, name + ":" + std::to_string(line));
    if (!document.root().has("error")) checked.push_back(checker.row(document.root()));
  }
  if (checked.empty()) throw Error(ErrorCode::kInput, name + ": found no measured rows");
  return checked;
}

Answer answer_of(const std::vector<CheckedRow>& rows, const CheckTolerance& tolerance) {
  Answer answer{.command = "check"};
  answer.columns = {{"case", "case"},
                    {"allocated_bytes", "allocated", Unit::kBytes, true},
                    {"allocated_error", "error", Unit::kShare},
                    {"reserved_bytes", "reserved", Unit::kBytes, true},
                    {"reserved_error", "error", Unit::kShare},
                    {"step_seconds", "step", Unit::kSeconds},
                    {"predicted_step_seconds", "predicted", Unit::kSeconds, true},
                    {"step_error", "error", Unit::kShare},
                    {"host_bound", "host", Unit::kYesNo},
                    {"kind", "kind", Unit::kText, true}};
  Errors allocated, reserved, step;
  std::size_t within = 0, answered = 0, host_bound = 0;
  for (const CheckedRow& row : rows) {
    if (!row.refused.empty()) {
      answer.notes.push_back(row.id + ": " + row.refused);
      continue;
    }
    ++answered;
    const auto of_allocated = error_of(row.predicted.peak_allocated, row.measured.peak_allocated);
    const auto of_reserved = error_of(row.predicted.peak_reserved, row.measured.peak_reserved);
    const auto of_step = error_of(row.predicted.step_seconds, row.measured.step_seconds);
    allocated.add(of_allocated);
    reserved.add(of_reserved);
    step.add(of_step);
    host_bound += row.host_bound ? 1 : 0;
    const auto accepted = [](const std::optional<double>& error, double most) {
      return most <= 0 || !error || std::abs(*error) <= most;
    };
    within += accepted(of_allocated, tolerance.allocated) && accepted(of_reserved, tolerance.reserved) &&
                      accepted(of_step, tolerance.step)
                  ? 1
                  : 0;
    answer.rows.push_back({row.id, value_of(row.measured.peak_allocated), value_of(of_allocated),
                           value_of(row.measured.peak_reserved), value_of(of_reserved),
                           value_of(row.measured.step_seconds), value_of(row.predicted.step_seconds), value_of(of_step),
                           row.host_bound, row.kind});
  }
  const double share = answered > 0 ? static_cast<double>(within) / static_cast<double>(answered) : 0;
  answer.positive = share >= tolerance.share;
  answer.headline = std::to_string(within) + " of " + std::to_string(answered) + " rows are within the tolerance; " +
                    std::to_string(rows.size() - answered) + " were refused.";
  allocated.tell("allocated", "allocated", answer);
  reserved.tell("reserved", "reserved", answer);
  step.tell("step", "step time", answer);
  answer.facts.push_back({"host_bound_rows", "bound by the host", Unit::kCount, static_cast<std::int64_t>(host_bound)});
  answer.facts.push_back({"within_tolerance", "within tolerance", Unit::kShare, share});
  return answer;
}

}  // namespace memcalc
