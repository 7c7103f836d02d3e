#include "many.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "errors.h"
#include "question.h"

namespace py = pybind11;

namespace memcalc::python {
namespace {

constexpr std::size_t kNumbers = 9;
constexpr std::size_t kPhases = 3;
constexpr std::array<Phase, kPhases> kReportedPhases = {Phase::kForward, Phase::kBackward, Phase::kOptimizer};

struct Row {
  std::int64_t ok = 0;  // 64 bits, so that nothing is padded
  std::int64_t fits = 0;
  std::array<std::int64_t, kNumbers> numbers{};
  std::array<std::int64_t, kPhases> phases{};
  std::array<std::int64_t, kCategoryCount> categories{};
  double flops = 0;
  double step_seconds = 0;  // NaN where it is not known
  double samples_per_second = 0;
};

constexpr std::array<const char*, kNumbers> kNumberNames = {
    "peak_allocated_bytes", "peak_reserved_bytes", "device_used_bytes", "exact_lower_bound_bytes", "slack_bytes",
    "allocated_end_bytes",  "host_pinned_bytes",   "parameters",        "trainable_parameters"};

double flops_of(const Report& report) {
  double sum = 0;
  for (const FlopRow& row : report.flops) sum += row.forward + row.backward + row.recomputation + row.optimizer;
  return sum;
}

Row row_of(const Report& report) {
  const ReplayResult& memory = report.memory;
  Row row;
  row.ok = 1;
  row.fits = report.fits() ? 1 : 0;
  row.numbers = {memory.peak_allocated,     memory.peak_reserved,    report.device_used_bytes.value_or(-1),
                 memory.exact_peak,         memory.slack_at_peak,    memory.allocated_at_end,
                 report.host_memory.pinned, report.parameters_total, report.parameters_trainable};
  for (std::size_t i = 0; i < kPhases; ++i) {
    row.phases[i] = memory.phase_peaks[static_cast<std::size_t>(kReportedPhases[i])];
  }
  std::copy(memory.categories_at_peak.begin(), memory.categories_at_peak.end(), row.categories.begin());
  row.flops = flops_of(report);
  constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
  row.step_seconds = report.time ? report.time->step.step_seconds : kUnknown;
  row.samples_per_second = report.time ? report.time->samples_per_second : kUnknown;
  return row;
}

/// One question after the other is taken by whichever thread is free: they differ in length.
void answer_all(const std::vector<const Question*>& questions, std::vector<Row>& rows,
                std::vector<std::exception_ptr>& errors, int threads) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < questions.size(); i = next++) {
      if (questions[i] == nullptr) continue;
      try {
        rows[i] = row_of(estimate(*questions[i]));
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  std::vector<std::jthread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(work);
  work();
}

py::object exception_from(const std::exception_ptr& pointer) {
  try {
    std::rethrow_exception(pointer);
  } catch (const std::exception& error) {
    return exception_of(error);
  }
}

}  // namespace

py::tuple estimate_many(const py::list& given, int threads) {
  std::vector<const Question*> questions(given.size(), nullptr);
  py::list failures;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const py::handle each = given[i];
    if (py::isinstance<Question>(each)) {
      questions[i] = each.cast<const Question*>();
    } else {
      failures.append(py::make_tuple(i, each));
    }
  }
  std::vector<Row> rows(given.size());
  std::vector<std::exception_ptr> errors(given.size());
  {
    const py::gil_scoped_release unlocked;
    answer_all(questions, rows, errors, std::clamp(threads, 1, 256));
  }
  for (std::size_t i = 0; i < errors.size(); ++i) {
    if (errors[i]) failures.append(py::make_tuple(i, exception_from(errors[i])));
  }
  return py::make_tuple(py::bytes(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(Row)), failures);
}

py::list row_fields() {
  py::list fields;
  const auto add = [&](const std::string& name, const char* type) { fields.append(py::make_tuple(name, type)); };
  add("ok", "<i8");
  add("fits", "<i8");
  for (const char* name : kNumberNames) add(name, "<i8");
  for (const Phase phase : kReportedPhases) add(std::string(name_of(phase)) + "_peak_bytes", "<i8");
  for (std::size_t i = 0; i < kCategoryCount; ++i) {
    add(std::string(name_of(static_cast<Category>(i))) + "_bytes", "<i8");
  }
  for (const char* name : {"flops", "step_seconds", "samples_per_second"}) add(name, "<f8");
  return fields;
}

}  // namespace memcalc::python
