#include "memcalc/plan/largest.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "memcalc/plan/smallest.h"
#include "memcalc/report/stages.h"
#include "memcalc/spec/device_rates.h"
#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/program.h"
#include "memcalc/spec/rules.h"

namespace memcalc {
namespace {

class Search {
 public:
  Search(const ModelSpec& model, const ResolvedRun& run, const DeviceSpec& device, const LargestOptions& options,
         const SearchControl& control)
      : model_(model),
        run_(run.run),
        halves_completions_(run.halves_completions),
        device_(device),
        untimed_(without_rates(device)),
        options_(options),
        control_(control) {
    heed_program();
    last_ = std::min(last_, options_.limit / options_.multiple_of);
    first_ = (options_.measure == Measure::kBatch
                  ? smallest_batch(model, run_, options_.multiple_of)
                  : shortest_sequence(model, run_, halves_completions_, options_.multiple_of)) /
             options_.multiple_of;
    if (options.measure == Measure::kSequence) {
      const auto positions = position_limit(model);
      if (positions) last_ = std::min(last_, *positions / options_.multiple_of);
      result_.trained = trained_context(model).value_or(0);
    }
    heed_limits();
    result_.model = model.name;
    result_.device = device;
    result_.options = options_;
    result_.run = run_;
  }

  [[nodiscard]] Largest run() {
    const Report smallest = smallest_report();  // wrong input is refused here
    result_.assumptions.insert(result_.assumptions.end(), smallest.assumptions.begin(), smallest.assumptions.end());
    result_.not_modelled = smallest.not_modelled;
    remember(first_, probe_of(smallest));
    const std::int64_t unhurried = boundary([](const Probe& probe) { return probe.verdict == Verdict::kFits; }, first_);
    const std::int64_t runs = boundary([](const Probe& probe) { return probe.runs; }, std::max(unhurried, first_));
    if (runs > 0 && !(runs == last_ && !result_.unanswered.empty())) ask_neighbours(runs);
    conclude(unhurried, runs);
    return std::move(result_);
  }

 private:
  /// Of the first that is answered: one image may be down to one value of a batch norm, two are not.
  [[nodiscard]] Report smallest_report() {
    try {
      return estimate(model_, run_of(first_), device_);
    } catch (const Error& error) {
      if (!wants_more_samples(error) || first_ == last_) throw;
    }
    return estimate(model_, run_of(++first_), device_);
  }

  /// A program may take multiples of a size alone, or the size that it was recorded at and no other.
  void heed_program() {
    const auto* spec = model_.architecture.get_if<ProgramSpec>();
    for (const ProgramSymbol& each : spec == nullptr ? std::vector<ProgramSymbol>() : spec->program->symbols) {
      if (each.name != (options_.measure == Measure::kBatch ? "batch" : "sequence")) continue;
      options_.multiple_of = std::lcm(options_.multiple_of, each.multiple);
      if (each.fixed.empty()) continue;
      options_.multiple_of = each.recorded;
      last_ = 1;
      result_.assumptions.push_back(
          fmt::format("{} is {} in this program, and no other: {}", each.name, each.recorded, each.fixed));
    }
  }

  /// What memcalc executes at most is known without executing it.
  void heed_limits() {
    const auto is_beyond = [&](std::int64_t index) {
      const Rule* rule = broken_rule(model_, run_of(index));
      return rule != nullptr && rule->is_limit;
    };
    if (first_ >= last_ || is_beyond(first_) || !is_beyond(last_)) return;
    std::int64_t within = first_, beyond = last_;
    while (beyond - within > 1) {
      const std::int64_t middle = within + (beyond - within) / 2;
      (is_beyond(middle) ? beyond : within) = middle;
    }
    last_ = within;
    const RunSpec refused = run_of(beyond);
    const RuleQuestion question{model_, refused, refused.parallel, shared_sizes(model_)};
    result_.unanswered = message_of(*broken_rule(model_, refused), question);
  }

  [[nodiscard]] RunSpec run_of(std::int64_t index) const {
    RunSpec run = run_;
    const std::int64_t value = checked_multiply(index, options_.multiple_of);
    if (options_.measure == Measure::kBatch) {
      run.batch_size = value;
    } else {
      set_sequence(run, value, halves_completions_);
    }
    return run;
  }

  [[nodiscard]] Probe probe_of(const Report& report) const {
    Probe probe{.allocated = report.memory.peak_allocated,
                .reserved = report.memory.peak_reserved,
                .needed = report.needed(),
                .verdict = report.verdict,
                .runs = report.fits()};
    if (report.full_card) {
      probe.runs = report.full_card->runs;
      probe.retries = report.full_card->retries;
    }
    const std::optional<HostFit> on_host = host_fit_of(report.host_memory, report.stages, report.run, options_.host);
    if (on_host && !on_host->suffices()) {
      probe.verdict = Verdict::kDoesNotFit;
      probe.runs = false;
    }
    return probe;
  }

  void remember(std::int64_t index, Probe probe) {
    probe.value = index * options_.multiple_of;
    probes_.emplace(index, probe);
    if (control_.progress) control_.progress(probes_.size(), 0);
  }

  // Sizes beyond 63 bits do not fit any card.
  [[nodiscard]] Probe estimated(std::int64_t index) const {
    try {
      return probe_of(estimate(model_, run_of(index), untimed_));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kOverflow) throw;
      constexpr Bytes kEndless = std::numeric_limits<Bytes>::max();
      return {.allocated = kEndless, .reserved = kEndless, .needed = kEndless};
    }
  }

  const Probe& ask(std::int64_t index) {
    const auto known = probes_.find(index);
    if (known != probes_.end()) return known->second;
    remember(index, estimated(index));
    return probes_.at(index);
  }

  // Where a straight line through the two outermost probes meets the memory of the card. The line of two small
  // probes can be as good as level, where something that does not grow makes both peaks: it does not lead further
  // than kStride times their larger one, for a step of many images takes as many events.
  [[nodiscard]] std::int64_t guess(std::int64_t low, std::int64_t high) const {
    const Probe& a = probes_.begin()->second;
    const Probe& b = probes_.at(high > 0 ? high : low);
    if (b.value <= a.value || b.needed <= a.needed) return 0;
    const double slope = static_cast<double>(b.needed - a.needed) / static_cast<double>(b.value - a.value);
    const double room = static_cast<double>(device_.usable_bytes() - a.needed);
    const double at = (static_cast<double>(a.value) + room / slope) / static_cast<double>(options_.multiple_of);
    const double reach = high > 0 ? 1e15 : kStride * static_cast<double>(low);
    return static_cast<std::int64_t>(std::clamp(at, 0.0, std::min(reach, 1e15)));
  }

  // The largest index that `good` holds for and the next not, with all probes below it good: doubling, then the line
  // or, where that does not halve what is left, the middle. 0: not even the first.
  template <typename Good>
  std::int64_t boundary(const Good& good, std::int64_t start) {
    std::int64_t low = start;  // known to be good
    std::int64_t high = 0;     // the least that is known not to be; 0: none
    if (!good(ask(low))) {
      if (low == first_) return 0;
      high = low, low = first_;
    }
    for (std::int64_t step = 1; high == 0 && low < last_ && !control_.stopped();) {
      const std::int64_t next = std::min(last_, probes_.size() < 2 ? low + step : std::max(low + step, guess(low, 0)));
      good(ask(next)) ? low = next : high = next;
      step *= 2;
    }
    bool halve = false;
    while (high > 0 && high - low > 1 && !control_.stopped()) {
      std::int64_t next = low + (high - low) / 2;
      if (!halve) next = std::clamp(guess(low, high), low + 1, high - 1);
      const std::int64_t width = high - low;
      good(ask(next)) ? low = next : high = next;
      halve = high - low > width / 2;
    }
    return low;
  }

  void ask_neighbours(std::int64_t around) {
    std::vector<std::int64_t> wanted;
    const std::int64_t first = std::max(first_, around - options_.neighbours);
    for (std::int64_t i = first; i <= std::min(last_, around + options_.neighbours); ++i) {
      if (!probes_.contains(i)) wanted.push_back(i);
    }
    std::vector<std::optional<Probe>> found(wanted.size());
    SearchControl quiet{.threads = control_.threads, .stop = control_.stop};
    (void)for_each_index(wanted.size(), quiet, [&](std::size_t i) { found[i] = estimated(wanted[i]); });
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (found[i]) remember(wanted[i], *found[i]);
    }
  }

  void conclude(std::int64_t unhurried, std::int64_t runs) {
    result_.value = runs * options_.multiple_of;
    result_.unhurried = std::min(unhurried, runs) * options_.multiple_of;
    if (runs < last_) result_.unanswered.clear();  // memory ended the search
    result_.at_limit = runs == last_ && result_.unanswered.empty();
    result_.complete = !control_.stopped();
    result_.run = run_of(std::max(runs, first_));
    std::optional<Bytes> before;
    for (const auto& [index, probe] : probes_) {
      if (probe.runs && index > runs) result_.larger_that_run.push_back(probe.value);
      if (!probe.runs && index < runs) result_.smaller_that_fail.push_back(probe.value);
      if (before && probe.needed < *before && !result_.drop) result_.drop = probe.value;
      before = probe.needed;
      result_.probes.push_back(probe);
    }
  }

  static constexpr double kStride = 64;  // times the larger of two probes

  const ModelSpec& model_;
  RunSpec run_;
  bool halves_completions_;
  DeviceSpec device_;
  DeviceSpec untimed_;  // of probes, which are asked for their memory
  LargestOptions options_;
  const SearchControl& control_;
  std::int64_t first_ = 1;                                        // that the rules take
  std::int64_t last_ = std::numeric_limits<std::int64_t>::max();  // indices are values in units of multiple_of
  std::map<std::int64_t, Probe> probes_;
  Largest result_;
};

void check(const ModelSpec& model, const RunSpec& run, const LargestOptions& options) {
  if (options.measure == Measure::kSequence && (is_vision(model) || run.task == Task::kCustom)) {
    throw Error(ErrorCode::kUsage, "max-seq: " + model.name + " takes no sequence of tokens; ask for max-batch");
  }
  if (options.multiple_of < 1 || options.multiple_of > options.limit) {
    throw Error(ErrorCode::kUsage, "multiple of: expected 1 to " + std::to_string(options.limit) + ", found " +
                                       std::to_string(options.multiple_of));
  }
}

}  // namespace

const Probe* Largest::probe_of(std::int64_t asked) const {
  const auto found = std::find_if(probes.begin(), probes.end(), [&](const Probe& p) { return p.value == asked; });
  return found == probes.end() ? nullptr : &*found;
}

Largest find_largest(const ModelSpec& model, const ResolvedRun& run, const DeviceSpec& device,
                     const LargestOptions& options, const SearchControl& control) {
  check(model, run.run, options);
  Largest largest = Search(model, run, device, options, control).run();
  // What resolve() assumed about the measure itself is what was asked.
  const char* own = options.measure == Measure::kBatch ? "batch size" : "sequence length";
  for (auto each = run.assumptions.rbegin(); each != run.assumptions.rend(); ++each) {
    if (!each->starts_with(own)) largest.assumptions.insert(largest.assumptions.begin(), *each);
  }
  return largest;
}

}  // namespace memcalc
