#include "memcalc/plan/ladder.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include "memcalc/plan/short_model.h"
#include "memcalc/plan/technique.h"
#include "memcalc/report/quantity.h"
#include "memcalc/report/stages.h"
#include "memcalc/spec/run_fields.h"

namespace memcalc {
namespace {

/// How often each technique of the table is applied; 0: it is not in the set.
using Set = std::vector<int>;

constexpr std::size_t kMostRemedies = 3;
constexpr std::size_t kEnoughRemedies = 2;  // what loses more than so many is not looked for

/// By what a run is known: short models (short_model.h), then the whole model on the ranks that may need most, then on
/// all ranks. What is shown is known by all.
enum class Depth { kShortModels, kHeaviestRanks, kAllRanks };

/// What comes of a run.
struct Known {
  Outcome outcome;
  Depth depth = Depth::kShortModels;
};

/// The run with a set of techniques.
struct Tried {
  bool possible = false;  // every technique of the set changes the run
  RunSpec run;
  Known* known = nullptr;  // where it is possible
  [[nodiscard]] const Outcome& outcome() const { return known->outcome; }
  [[nodiscard]] bool fits() const { return possible && outcome().answered() && outcome().fits(); }
};

std::string filled(std::string_view text, const std::string& figure) {
  const std::size_t at = text.find("{}");
  if (at == std::string_view::npos) return std::string(text);
  return std::string(text.substr(0, at)).append(figure).append(text.substr(at + 2));
}

std::string name_of(const Technique& technique, const RunSpec& run) {
  return filled(technique.name, technique.figure != nullptr ? technique.figure(run) : "");
}

std::string price_of(const Technique& technique, const RunSpec& run, const TechniqueQuestion& question) {
  std::string price(technique.price);
  const std::string beside = technique.beside != nullptr ? technique.beside(run, question) : "";
  if (!price.empty() && !beside.empty()) price += "; ";
  return price + beside;
}

/// One search. It goes by short models; what it would show is then simulated a step deeper, and the search repeated
/// with that, until all that it shows was simulated whole on all ranks.
class Climb {
 public:
  /// A technique that was tried, with what it was added to.
  struct Step {
    std::size_t technique;
    Set set;
    bool kept;
  };

  Climb(const ModelSpec& model, const RunSpec& run, const DeviceSpec& device, Outcome asked, const TimeOptions* time,
        bool device_assumed, const SearchControl& control)
      : question_{model, run, device}, time_(time), device_assumed_(device_assumed), control_(control) {
    threads_ = control.threads != 0 ? control.threads : std::max(1U, std::thread::hardware_concurrency());
    Known& known = known_[key_of(run)] = Known{on_host(std::move(asked), run), Depth::kAllRanks};
    tried_[Set(techniques().size())] = Tried{true, run, &known};
  }

  /// `all`: every technique is tried. Otherwise, what loses more than enough remedies is not. `shows_steps`: they are
  /// shown, not the remedies alone.
  void climb(bool all, bool shows_steps) {
    do {
      search(all);
      chosen_ = remedy_sets();
    } while (complete_ && !simulate_whole(shows_steps));
  }

  /// As many of the steps as are shown: to the first that fits, where not all are.
  [[nodiscard]] std::span<const Step> shown_steps(bool all) const {
    const auto first =
        std::find_if(steps_.begin(), steps_.end(), [&](const Step& step) { return of(step.set).fits(); });
    const bool ends = !all && first != steps_.end();
    return std::span(steps_).first(static_cast<std::size_t>(ends ? first + 1 - steps_.begin() : std::ssize(steps_)));
  }
  [[nodiscard]] std::int64_t refused() const { return refused_; }
  [[nodiscard]] bool complete() const { return complete_; }
  [[nodiscard]] const Tried& of(const Set& set) const { return tried_.at(set); }

  [[nodiscard]] std::string command_of(const RunSpec& run) const {
    return "memcalc " + memcalc::command_of(RunRecord{question_.model, run, &question_.device, time_, device_assumed_});
  }

  [[nodiscard]] std::vector<Remedy> remedies() const {
    std::vector<Remedy> remedies;
    for (const Set& set : chosen_) remedies.push_back(remedy_of(set));
    return remedies;
  }

  [[nodiscard]] std::string price_of(std::size_t technique, const RunSpec& run) const {
    return memcalc::price_of(techniques()[technique], run, question_);
  }

 private:
  void search(bool all) {
    all_ = all;
    standing_ = {};
    standing_[0] = Set(techniques().size());
    steps_.clear();
    fitting_.clear();
    refused_ = 0;
    collects_ = !tried_.at(*standing_[0]).fits();
    for (std::size_t i = 0; i < techniques().size(); ++i) {
      const bool dearer = i > 0 && techniques()[i].loss != techniques()[i - 1].loss;
      collects_ = collects_ && !(dearer && has_enough());
      if (!collects_ && !all) return;
      if (control_.stopped()) {
        complete_ = false;
        return;
      }
      try_technique(i);
    }
  }

  [[nodiscard]] std::vector<Set> remedy_sets() {
    std::vector<Set> sets = in_order(fitting_);
    if (sets.size() > kMostRemedies) sets.resize(kMostRemedies);
    if (sets.empty()) {
      if (const std::optional<Set> least = least_of_all()) sets.push_back(*least);
    }
    return sets;
  }

  /// What is shown; whether all of it was simulated already.
  [[nodiscard]] bool simulate_whole(bool shows_steps) {
    std::vector<Set> shown = chosen_;
    if (shows_steps) {
      for (const Step& step : shown_steps(all_)) shown.push_back(step.set);
    }
    std::map<Known*, const Tried*> unknown;
    for (const Set& set : shown) {
      const Tried& tried = tried_.at(set);
      if (tried.known->depth != Depth::kAllRanks) unknown.emplace(tried.known, &tried);
    }
    const std::vector<std::pair<Known*, const Tried*>> wave(unknown.begin(), unknown.end());
    (void)for_each_index(wave.size(), unstopped(), [&](std::size_t i) {
      const auto& [known, tried] = wave[i];
      const Candidate candidate{question_.model, tried->run, question_.device};
      // What does not fit on one of its ranks is most often not shown: the others would be simulated in vain.
      *known = known->depth == Depth::kShortModels ? on_heaviest_ranks(candidate)
                                                   : Known{simulated(candidate), Depth::kAllRanks};
      known->outcome = on_host(std::move(known->outcome), tried->run);
    });
    return wave.empty();
  }

  [[nodiscard]] static Known on_heaviest_ranks(const Candidate& candidate) {
    Survey survey = simulated_on_heaviest_ranks(candidate);
    return {std::move(survey.outcome), survey.whole ? Depth::kAllRanks : Depth::kHeaviestRanks};
  }

  /// What takes more of the host than it has does not run, whatever the card has.
  [[nodiscard]] Outcome on_host(Outcome outcome, const RunSpec& run) const {
    if (time_ == nullptr || time_->host_size.bytes == 0 || !outcome.answered()) return outcome;
    if (checked_multiply(ranks_on_host(run), outcome.host) <= time_->host_size.bytes) return outcome;
    outcome.starts = false;
    outcome.verdict = Verdict::kDoesNotFit;
    return outcome;
  }

  /// A step of the search is finished.
  [[nodiscard]] SearchControl unstopped() const {
    return {.threads = control_.threads, .progress = {}, .stop = nullptr};
  }

  [[nodiscard]] static Set with(Set set, std::size_t technique, int grade) {
    set[technique] = grade;
    return set;
  }

  /// Without its outcome.
  [[nodiscard]] Tried applied(const Set& set) const {
    Tried tried{true, question_.asked, {}};
    for (std::size_t i = 0; i < set.size() && tried.possible; ++i) {
      tried.possible = set[i] == 0 || techniques()[i].apply(tried.run, question_, set[i]);
    }
    return tried;
  }

  /// Alike for sets that make the same run: full checkpointing takes the place of selective.
  [[nodiscard]] std::string key_of(const RunSpec& run) const {
    std::string key;
    for (const std::string& word : words_of(RunRecord{question_.model, run})) key += word + " ";
    return key;
  }

  /// Estimates those that are not known yet, on all threads.
  void estimate_all(const std::vector<Set>& sets) {
    std::vector<const Tried*> unknown;
    for (const Set& set : sets) {
      if (tried_.contains(set)) continue;
      Tried& tried = tried_[set] = applied(set);
      if (!tried.possible) continue;
      const auto [at, is_new] = known_.try_emplace(key_of(tried.run));
      tried.known = &at->second;
      if (is_new) unknown.push_back(&tried);
    }
    (void)for_each_index(unknown.size(), unstopped(), [&](std::size_t i) {
      const Candidate candidate{question_.model, unknown[i]->run, question_.device};
      const bool has_short = short_lengths_of(candidate.model, candidate.run).has_value();
      *unknown[i]->known =
          has_short ? Known{surveyed(candidate).outcome, Depth::kShortModels} : on_heaviest_ranks(candidate);
      unknown[i]->known->outcome = on_host(std::move(unknown[i]->known->outcome), candidate.run);
    });
    if (control_.progress && !unknown.empty()) control_.progress(known_.size(), 0);
  }

  const Tried& at(const Set& set) {
    if (!tried_.contains(set)) estimate_all({set});
    return tried_.at(set);
  }

  /// Null: there is no such set, since what it begins with was refused.
  [[nodiscard]] const std::optional<Set>& standing(Branch branch) const {
    const auto& set = standing_[static_cast<std::size_t>(branch)];
    return branch == Branch::kHost && !set ? standing_[0] : set;
  }

  /// The technique on top of a set: of a graded one the least grade that fits, else the most. Nothing: it changes
  /// nothing, or is refused.
  std::optional<Set> added(const Set& base, std::size_t i) {
    const bool graded = techniques()[i].graded;
    std::optional<Set> best;
    for (int grade = 1;; grade += graded ? static_cast<int>(threads_) : 1) {
      std::vector<Set> wave;
      if (graded) {
        for (unsigned next = 0; next < threads_; ++next) wave.push_back(with(base, i, grade + static_cast<int>(next)));
      } else {
        wave = speculated(base, i);
      }
      estimate_all(wave);
      for (const Set& set : wave) {
        const Tried& tried = tried_.at(set);
        if (set[i] == 0 || !tried.possible) return best;
        if (!tried.outcome().answered()) {
          if (!best && !tried.outcome().own_fault) ++refused_;
          return tried.outcome().own_fault && !best ? set : best;
        }
        best = set;
        if (tried.fits() || !graded) return best;
      }
    }
  }

  /// The set with this technique, and, for other threads, what comes next if it helps.
  [[nodiscard]] std::vector<Set> speculated(const Set& base, std::size_t i) const {
    std::vector<Set> wave = {with(base, i, 1)};
    if (tried_.contains(wave.front()) || !applied(wave.front()).possible) return wave;
    for (std::size_t next = i + 1; next < techniques().size() && wave.size() < threads_; ++next) {
      const Technique& technique = techniques()[next];
      if (technique.loss != techniques()[i].loss || technique.from != techniques()[i].to) break;
      Set set = with(wave.back(), next, 1);
      if (applied(set).possible) wave.push_back(std::move(set));
    }
    return wave;
  }

  void try_technique(std::size_t i) {
    const Technique& technique = techniques()[i];
    const std::optional<Set>& from = standing(technique.from);
    if (!from) return;
    const Set base = *from;
    const std::optional<Set> set = added(base, i);
    if (!set) return;
    const Outcome& outcome = tried_.at(*set).outcome();
    const Outcome& before = at(base).outcome();
    const bool spares = outcome.starts == before.starts ? outcome.needed < before.needed : outcome.starts;
    const bool helps = outcome.answered() && (technique.required || spares);
    steps_.push_back({i, *set, helps});
    // What stands on a set that fits is not needed; it may do without that set.
    if (helps) standing_[static_cast<std::size_t>(technique.to)] = *set;
    if (collects_ && tried_.at(*set).fits()) keep(least(*set, i));
  }

  /// A set that does without more of its techniques, in smaller grades, and still fits; the dearest leave first.
  Set least(Set set, std::size_t last) {
    const Technique& added = techniques()[last];
    if (added.graded && added.loss == Loss::kTime) set = with_most(set, last);
    std::vector<std::size_t> others;
    for (std::size_t i = set.size(); i-- > 0;) {
      if (set[i] > 0 && i != last && !techniques()[i].required && !opens_branch(i, last)) others.push_back(i);
    }
    for (std::size_t at_first = 0; at_first < others.size(); ++at_first) {
      std::vector<Set> without;
      for (std::size_t k = at_first; k < others.size() && without.size() < threads_; ++k) {
        without.push_back(with(set, others[k], 0));
      }
      estimate_all(without);
      const std::size_t i = others[at_first];
      set = tried_.at(without.front()).fits() ? without.front() : with_least(set, i);
    }
    return with_least(set, last);
  }

  /// LoRA is what sharding beside LoRA stands on.
  [[nodiscard]] static bool opens_branch(std::size_t i, std::size_t of) {
    const Branch branch = techniques()[of].from;
    return branch != Branch::kRun && branch != Branch::kHost && techniques()[i].to == branch;
  }

  /// The greatest grade that is possible and fits.
  Set with_most(Set set, std::size_t i) {
    while (at(with(set, i, set[i] + 1)).fits()) ++set[i];
    return set;
  }

  /// The least grade of 1 or more that fits.
  Set with_least(const Set& set, std::size_t i) {
    for (int grade = 1; grade < set[i]; ++grade) {
      if (at(with(set, i, grade)).fits()) return with(set, i, grade);
    }
    return set;
  }

  /// Some, of which one trains or reads all that was asked for.
  [[nodiscard]] bool has_enough() const {
    return fitting_.size() >= kEnoughRemedies && std::any_of(fitting_.begin(), fitting_.end(), [](const Set& set) {
             for (std::size_t i = 0; i < set.size(); ++i) {
               if (set[i] > 0 && techniques()[i].loss == Loss::kScope) return false;
             }
             return true;
           });
  }

  /// Unless it has all that another one has.
  void keep(const Set& set) {
    const bool more = std::any_of(fitting_.begin(), fitting_.end(), [&](const Set& other) {
      return std::equal(other.begin(), other.end(), set.begin(), [](int a, int b) { return a <= b; });
    });
    if (!more) fitting_.push_back(set);
  }

  [[nodiscard]] static Loss loss_of(const Set& set) {
    Loss loss = Loss::kTime;
    for (std::size_t i = 0; i < set.size(); ++i) {
      if (set[i] > 0) loss = std::max(loss, techniques()[i].loss);
    }
    return loss;
  }

  /// Samples per second; unknown: none.
  [[nodiscard]] double pace_of(const Set& set) const {
    const auto& speed = of(set).outcome().speed;
    return speed ? speed->samples_per_second : 0;
  }

  /// What is lost, and how many cards it takes: compared before speed.
  [[nodiscard]] std::pair<Loss, std::int64_t> price_of(const Set& set) const {
    const Loss loss = loss_of(set);
    return {loss, loss == Loss::kCards ? of(set).run.parallel.gpus : 1};
  }

  /// The cheapest first; what is nearly as fast as the fastest stays in the order of the table.
  [[nodiscard]] std::vector<Set> in_order(std::vector<Set> sets) const {
    constexpr double kNearly = 0.95;
    std::vector<Set> ordered;
    while (!sets.empty()) {
      auto least = price_of(sets.front());
      for (const Set& set : sets) least = std::min(least, price_of(set));
      double fastest = 0;
      for (const Set& set : sets) {
        if (price_of(set) == least) fastest = std::max(fastest, pace_of(set));
      }
      const auto next = std::find_if(sets.begin(), sets.end(), [&](const Set& set) {
        return price_of(set) == least && pace_of(set) >= kNearly * fastest;
      });
      ordered.push_back(*next);
      sets.erase(next);
    }
    return ordered;
  }

  /// What a run needs, but for the allocator's fragments: alike at every depth. With them, a set that was simulated
  /// whole would lose to one that was not, which would then be simulated whole, and so on through all sets.
  [[nodiscard]] static Bytes without_fragments(const Outcome& outcome) {
    return outcome.needed - outcome.reserved + outcome.allocated;
  }

  /// Of what was tried, without what does not help; nothing where no technique needs less than the run as asked.
  std::optional<Set> least_of_all() {
    Set least(techniques().size());
    const auto needs_less = [](const Outcome& a, const Outcome& b) {
      return a.answered() && without_fragments(a) < without_fragments(b);
    };
    for (const Step& step : steps_) {
      if (needs_less(of(step.set).outcome(), of(least).outcome())) least = step.set;
    }
    for (std::size_t i = least.size(); i-- > 0;) {
      if (least[i] == 0 || techniques()[i].required) continue;
      const Tried& without = at(with(least, i, 0));
      const bool as_good =
          without.possible && without.outcome().answered() && !needs_less(of(least).outcome(), without.outcome());
      if (as_good) least = with(least, i, 0);
    }
    if (std::count(least.begin(), least.end(), 0) == static_cast<std::ptrdiff_t>(least.size())) return std::nullopt;
    return least;
  }

  [[nodiscard]] Remedy remedy_of(const Set& set) const {
    const Tried& tried = of(set);
    Remedy remedy{.command = command_of(tried.run),
                  .needed = tried.outcome().needed,
                  .error = tried.outcome().error,
                  .verdict = tried.outcome().verdict};
    if (tried.outcome().speed) remedy.step_seconds = tried.outcome().speed->step_seconds;
    for (std::size_t i = 0; i < set.size(); ++i) {
      if (set[i] == 0) continue;
      remedy.techniques.push_back(name_of(techniques()[i], tried.run));
      const std::string price = price_of(i, tried.run);
      if (price.empty() || price.starts_with("none")) continue;
      remedy.price += (remedy.price.empty() ? "" : "; ") + price;
    }
    if (remedy.price.empty()) remedy.price = "nothing";
    return remedy;
  }

  TechniqueQuestion question_;
  const TimeOptions* time_;
  bool device_assumed_;
  const SearchControl& control_;
  unsigned threads_ = 1;
  std::map<Set, Tried> tried_;
  std::map<std::string, Known> known_;  // by key_of()
  std::array<std::optional<Set>, kBranchCount> standing_;
  std::vector<Step> steps_;
  std::vector<Set> fitting_;  // none of which has all of another one
  std::vector<Set> chosen_;   // the remedies
  bool all_ = false;
  std::int64_t refused_ = 0;
  bool collects_ = true;  // what fits; not where the run fits as it is, and not what loses too much
  bool complete_ = true;
};

}  // namespace

Ladder climb(const ModelSpec& model, const ResolvedRun& run, const DeviceSpec& device, bool all,
             const SearchControl& control, const HostSize& host) {
  const Report report = estimate(model, run.run, device);  // wrong input is refused here
  Ladder ladder{.model = model.name, .device = device, .all = all, .assumptions = run.assumptions};
  TimeOptions time;
  time.host_size = host;
  Climb search(model, run.run, device, outcome_of(report), &time, false, control);
  const Outcome asked = search.of(Set(techniques().size())).outcome();
  ladder.rungs.push_back({"as asked", "", run.run, search.command_of(run.run), asked, true});
  if (asked.fits()) ladder.first_fit = 0;
  if (!asked.fits() || all) search.climb(all, true);
  for (const Climb::Step& step : search.shown_steps(all)) {
    const Tried& tried = search.of(step.set);
    ladder.rungs.push_back({name_of(techniques()[step.technique], tried.run),
                            search.price_of(step.technique, tried.run), tried.run, search.command_of(tried.run),
                            tried.outcome(), step.kept});
    if (tried.fits() && !ladder.first_fit) ladder.first_fit = ladder.rungs.size() - 1;
  }
  if (!asked.fits()) ladder.remedies = search.remedies();
  ladder.refused = search.refused();
  ladder.complete = search.complete();
  return ladder;
}

std::vector<Remedy> remedies_for(const Report& report, const SearchControl& control) {
  if (report.fits()) return {};
  Climb search(report.model, report.run, report.device, outcome_of(report), &report.asked_time, report.device_assumed,
               control);
  search.climb(false, false);
  return search.remedies();
}

Answer answer_of(const Ladder& ladder) {
  Answer answer;
  answer.command = "ladder";
  answer.complete = ladder.complete;
  answer.positive = ladder.first_fit.has_value();
  answer.assumptions = ladder.assumptions;
  const std::string where =
      fmt::format("{} on {} ({})", ladder.model, ladder.device.name, format_bytes(ladder.device.usable_bytes()));
  if (ladder.first_fit == std::size_t{0}) {
    answer.headline = where + " fits as it is.";
  } else if (ladder.first_fit && !ladder.remedies.empty()) {
    std::string needed;
    for (const std::string& each : ladder.remedies.front().techniques) needed += (needed.empty() ? "" : ", ") + each;
    answer.headline = fmt::format("{} fits with: {}.", where, needed);
  } else {
    Bytes least = ladder.rungs.front().outcome.needed;
    for (const Rung& rung : ladder.rungs) {
      if (rung.outcome.answered()) least = std::min(least, rung.outcome.needed);
    }
    for (const Remedy& remedy : ladder.remedies) least = std::min(least, remedy.needed);
    const Bytes missing = least - ladder.device.usable_bytes();
    answer.headline =
        fmt::format("{} does NOT fit with any of these: the best needs {}, {}.", where, format_bytes(least),
                    missing > 0 ? format_bytes(missing) + " too much" : "which is too close to call");
  }
  answer.columns = {{"technique", "technique", Unit::kText},   {"needed_bytes", "needed", Unit::kBytes},
                    {"verdict", "fits", Unit::kVerdict},       {"step_seconds", "step", Unit::kSeconds, true},
                    {"kept", "kept", Unit::kYesNo, true},      {"headroom_bytes", "headroom", Unit::kBytes, true},
                    {"command", "command", Unit::kText, true}, {"price", "what it costs", Unit::kText, true},
                    {"refusal", "why not", Unit::kText, true}};
  for (const Rung& rung : ladder.rungs) {
    std::vector<Value> row = {rung.technique};
    row.resize(answer.columns.size());
    if (rung.outcome.answered()) {
      row[1] = rung.outcome.needed;
      row[2] = std::string(name_of(rung.outcome.verdict));
      if (rung.outcome.speed) row[3] = rung.outcome.speed->step_seconds;
      row[4] = rung.kept;
      row[5] = rung.outcome.headroom;
    }
    row[6] = rung.command;
    row[7] = rung.price;
    if (!rung.outcome.answered()) {  // a bug of memcalc; what is refused is no rung
      row[8] = rung.outcome.refusal;
      answer.notes.push_back(rung.technique + ": " + rung.outcome.refusal);
    }
    answer.rows.push_back(std::move(row));
  }
  answer.remedies = ladder.remedies;
  if (ladder.all && ladder.refused > 0) {
    answer.notes.push_back(fmt::format("{} more {} tried that this model, loop or framework does not take",
                                       format_counted(ladder.refused, "technique"),
                                       ladder.refused == 1 ? "was" : "were"));
  }
  if (!ladder.complete) answer.notes.emplace_back("stopped early: the techniques that were tried by then");
  return answer;
}

}  // namespace memcalc
