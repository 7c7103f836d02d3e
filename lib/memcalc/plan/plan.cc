#include "memcalc/plan/plan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>

#include "memcalc/plan/closed_form.h"
#include "memcalc/plan/plainness.h"
#include "memcalc/plan/plan_search.h"
#include "memcalc/plan/plan_space.h"
#include "memcalc/plan/short_model.h"
#include "memcalc/spec/limits.h"
#include "memcalc/spec/rules.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

constexpr std::size_t kWave = 8;            // simulated before the next decision: the same on any number of threads
constexpr std::size_t kMostSimulated = 64;  // whole, beside those that show that nothing fits
constexpr double kClearlyLess = 0.95;       // of memory: what saves less than this is no reason to be slower
constexpr double kTooSlow = 2;              // times the fastest: nobody waits so long for room that is left anyway
constexpr std::size_t kUntimed = 2;         // without a predicted step, behind those that have one
constexpr std::size_t kLeanest = 4;         // of a framework that are simulated before it is said that none fits

constexpr const char* kNotReached = "not among the most promising: not looked at (--simulate)";

constexpr const char* kBeyondCard = "more than the card by the closed form alone";

/// What became of one candidate before it was looked at.
struct Sifted {
  std::string rule;  // empty: still in
  double least = 0;
  double likely = 0;
  double ranking = 0;
};

Framework framework_of(const Choice& choice) {
  switch (choice.way) {
    case Way::kDeepSpeed: return Framework::kDeepSpeed;
    case Way::kMegatron: return Framework::kMegatron;
    default: return Framework::kTorch;
  }
}

class Planner {
 public:
  Planner(const PlanQuestion& question, const SearchControl& control)
      : question_(question),
        control_(control),
        choices_(choices_of(question)),
        forms_(closed_forms_of(question, choices_, control)) {}

  [[nodiscard]] Plan run() {
    sift();
    survey();
    for (PlanSearch& search : searches_) {
      for (Contender& each : search.contenders()) {
        if (each.survey) pool_.push_back(&each);
      }
    }
    simulate_front();
    if (control_.stopped() && !any_fits()) simulate_best();
    if (!control_.stopped() && !any_fits()) simulate_leanest();
    finish();
    return std::move(plan_);
  }

 private:
  /// Contenders by framework, in the order in which they are asked for.
  void sift() {
    plan_.candidates = choices_.size();
    std::vector<Sifted> sifted(choices_.size());
    constexpr std::size_t kPart = 1024;  // candidates at a time: their work is short
    const SearchControl quiet{.threads = control_.threads, .progress = {}, .stop = control_.stop};
    (void)for_each_index((choices_.size() + kPart - 1) / kPart, quiet, [&](std::size_t part) {
      const std::size_t end = std::min(choices_.size(), (part + 1) * kPart);
      for (std::size_t i = part * kPart; i < end; ++i) sifted[i] = sifted_of(choices_[i]);
    });
    for (const Framework framework : question_.frameworks) {
      Tried& tried = plan_.tried.emplace_back();
      tried.framework = framework;
      std::map<std::string, std::size_t> rules;
      std::vector<Contender> contenders;
      const std::optional<std::size_t> leanest = leanest_beyond_card(choices_, sifted, framework);
      for (std::size_t i = 0; i < choices_.size(); ++i) {
        if (framework_of(choices_[i]) != framework) continue;
        ++tried.candidates;
        if ((sifted[i].rule.empty() && sifted[i].least > 0) || leanest == i) {
          contenders.push_back({choices_[i], sifted[i].least, sifted[i].likely, sifted[i].ranking, nullptr, nullptr});
        } else {
          ++rejected_[sifted[i].rule.empty() ? kNotReached : sifted[i].rule];
          ++rules[sifted[i].rule];
        }
      }
      const auto most = std::max_element(rules.begin(), rules.end(),
                                         [](const auto& a, const auto& b) { return a.second < b.second; });
      if (contenders.empty() && most != rules.end()) tried.refused = most->first;
      searches_.emplace_back(question_, std::move(contenders));
    }
  }

  /// Where all candidates of a framework need more than the card: the one that is simulated nevertheless, so that
  /// the answer can say how far it is from it.
  [[nodiscard]] std::optional<std::size_t> leanest_beyond_card(const std::vector<Choice>& choices,
                                                               const std::vector<Sifted>& sifted,
                                                               Framework framework) const {
    std::vector<std::size_t> beyond;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (framework_of(choices[i]) != framework) continue;
      if (sifted[i].rule.empty()) return std::nullopt;
      if (sifted[i].rule == kBeyondCard) beyond.push_back(i);
    }
    std::stable_sort(beyond.begin(), beyond.end(), [&](std::size_t a, std::size_t b) {
      return std::tie(sifted[a].least, sifted[a].likely) < std::tie(sifted[b].least, sifted[b].likely);
    });
    const auto possible = std::find_if(beyond.begin(), beyond.end(), [&](std::size_t i) {
      return broken_rule(question_.model, run_of(question_, choices[i])) == nullptr;
    });
    return possible == beyond.end() ? std::nullopt : std::optional(*possible);
  }

  [[nodiscard]] Sifted sifted_of(const Choice& choice) const {
    if (const char* rule = contradiction_in(question_, choice)) return {rule};
    if (const char* rule = unsaid_in_settings(question_, choice)) return {rule};
    const ClosedForm* form = forms_.of(choice);
    if (form == nullptr) return {forms_.refusals[static_cast<std::size_t>(choice.way)]};
    Sifted sifted;
    sifted.least = least_bytes(*form, question_, choice);
    sifted.likely = memcalc::likely_bytes(*form, question_, choice);
    if (sifted.least > static_cast<double>(question_.device.usable_bytes())) {
      sifted.rule = kBeyondCard;
      return sifted;
    }
    if (const Rule* rule = broken_rule(question_.model, run_of(question_, choice))) {
      return {std::string(rule->id)};
    }
    sifted.least = std::max(sifted.least, 1.0);
    sifted.ranking = ranking_seconds(*form, question_, choice);
    return sifted;
  }

  void survey() {
    const std::size_t all = question_.surveyed * searches_.size();
    std::size_t before = 0;
    for (PlanSearch& search : searches_) {
      const SearchControl counted{.threads = control_.threads,
                                  .progress =
                                      [&](std::size_t done, std::size_t) {
                                        if (control_.progress) control_.progress(before + done, all);
                                      },
                                  .stop = control_.stop};
      search.survey(question_.surveyed, counted);
      before += question_.surveyed;
    }
  }

  [[nodiscard]] bool is_in_host(const Outcome& outcome) const {
    return question_.host.bytes_per_gpu == 0 || outcome.host <= question_.host.bytes_per_gpu;
  }

  /// Fits by what is known of it; of a survey with the allocator's slack that the nearest simulated one has.
  [[nodiscard]] bool may_fit(const Contender& each) const {
    const Outcome& known = *each.known();
    if (!known.answered() || !is_in_host(known)) return false;
    if (each.simulated) return known.fits();
    return verdict_of(likely_bytes(each), known.error, question_.device.usable_bytes()) == Verdict::kFits;
  }

  [[nodiscard]] Bytes likely_bytes(const Contender& each) const {
    if (each.simulated) return each.simulated->needed;
    const auto surveyed = static_cast<double>(each.survey->outcome.needed);
    constexpr double kAlike = 2;
    double nearest = kAlike, slack = 1;
    for (const Contender* other : pool_) {
      if (!other->simulated || !other->simulated->answered() || other->survey->whole) continue;
      const double distance = distance_of(question_, each.choice, other->choice);
      if (distance >= nearest) continue;
      nearest = distance;
      slack = static_cast<double>(other->simulated->needed) / static_cast<double>(other->survey->outcome.needed);
    }
    return static_cast<Bytes>(std::max(slack, 1.0) * surveyed);
  }

  [[nodiscard]] static double seconds_of(const Contender& each) {
    const Outcome& known = *each.known();
    return known.speed ? known.speed->step_seconds : each.ranking_seconds;
  }

  /// Of what may fit: the recommended first, then the front. A closed form is no rival of a prediction: what has none
  /// stands behind, where it needs less.
  [[nodiscard]] std::vector<Contender*> front(bool simulated_only) const {
    std::vector<std::pair<Contender*, Bytes>> fitting;
    for (Contender* each : pool_) {
      if ((each->simulated || !simulated_only) && may_fit(*each)) fitting.emplace_back(each, likely_bytes(*each));
    }
    const auto order_of = [](const auto& each) {
      return std::tuple(!each.first->known()->speed.has_value(), seconds_of(*each.first), each.second,
                        strangeness_of(each.first->choice));
    };
    std::stable_sort(fitting.begin(), fitting.end(),
                     [&](const auto& a, const auto& b) { return order_of(a) < order_of(b); });
    std::vector<Contender*> chosen;
    if (fitting.empty()) return chosen;
    const bool timed = fitting.front().first->known()->speed.has_value();
    const double as_fast = seconds_of(*fitting.front().first) * (1 + kAsFast);
    const auto* plainest = &fitting.front();
    for (const auto& each : fitting) {
      if (each.first->known()->speed.has_value() != timed || seconds_of(*each.first) > as_fast) break;
      if (strangeness_of(each.first->choice) < strangeness_of(plainest->first->choice)) plainest = &each;
    }
    chosen.push_back(plainest->first);
    double least = 0;
    std::size_t untimed = 0;
    const double slowest = kTooSlow * seconds_of(*fitting.front().first);
    for (const auto& [each, bytes] : fitting) {
      if (least > 0 && static_cast<double>(bytes) > kClearlyLess * least) continue;
      const bool is_timed = each->known()->speed.has_value();
      if (is_timed == timed && seconds_of(*each) > slowest) continue;
      if (timed && !is_timed && ++untimed > kUntimed) break;
      least = static_cast<double>(bytes);
      if (each != chosen.front()) chosen.push_back(each);
    }
    return chosen;
  }

  void simulate(const std::vector<Contender*>& wave) {
    const SearchControl quiet{.threads = control_.threads, .progress = {}, .stop = nullptr};  // they are short
    (void)for_each_index(wave.size(), quiet, [&](std::size_t i) {
      wave[i]->simulated = std::make_unique<Outcome>(simulated(candidate_of(question_, wave[i]->choice)));
    });
  }

  /// Until all of the front are simulated whole.
  void simulate_front() {
    std::size_t simulated = 0;
    while (simulated < kMostSimulated && !control_.stopped()) {
      std::vector<Contender*> wave;
      for (Contender* each : front(false)) {
        if (!each->simulated && wave.size() < kWave) wave.push_back(each);
      }
      if (wave.empty()) return;
      simulate(wave);
      simulated += wave.size();
    }
  }

  /// After a stop: what is best by what is known.
  void simulate_best() {
    for (int tries = 0; tries < 3 && !any_fits(); ++tries) {
      const std::vector<Contender*> best = front(false);
      if (best.empty() || best.front()->simulated) return;
      simulate({best.front()});
    }
  }

  [[nodiscard]] bool any_fits() const {
    return std::any_of(pool_.begin(), pool_.end(), [&](const Contender* each) {
      return each->simulated && each->simulated->answered() && each->simulated->fits() && is_in_host(*each->simulated);
    });
  }

  /// Of each framework those that need least: only then nothing fits.
  void simulate_leanest() {
    for (const Framework framework : question_.frameworks) {
      std::vector<Contender*> leanest;
      for (Contender* each : pool_) {
        if (framework_of(each->choice) == framework && each->known()->answered()) leanest.push_back(each);
      }
      // What the host cannot take comes last.
      std::stable_sort(leanest.begin(), leanest.end(), [&](const Contender* a, const Contender* b) {
        return std::tuple(!is_in_host(*a->known()), a->known()->needed) <
               std::tuple(!is_in_host(*b->known()), b->known()->needed);
      });
      leanest.resize(std::min(leanest.size(), kLeanest));
      std::erase_if(leanest, [](const Contender* each) { return each->simulated != nullptr; });
      if (!control_.stopped()) simulate(leanest);
    }
  }

  [[nodiscard]] PlanEntry entry_of(const Contender& each) const {
    return {run_of(question_, each.choice), *each.simulated, each.ranking_seconds, strangeness_of(each.choice)};
  }

  void finish() {
    std::vector<const Contender*> kept;
    for (const Contender* each : front(true)) {
      kept.push_back(each);
      plan_.front.push_back(entry_of(*each));
    }
    for (std::size_t i = 0; i < searches_.size(); ++i) {
      Tried& tried = plan_.tried[i];
      for (const Contender& each : searches_[i].contenders()) {
        const bool is_kept = std::find(kept.begin(), kept.end(), &each) != kept.end();
        const std::string reason = reason_against(each);
        if (!is_kept) ++rejected_[reason];
        if (each.known() != nullptr && each.known()->own_fault) ++plan_.own_faults;
        if (each.survey) ++tried.surveyed;
        if (!each.simulated) continue;
        ++tried.simulated;
        if (!each.simulated->answered()) continue;
        if (each.simulated->fits() && is_in_host(*each.simulated)) ++plan_.fitting;
        const auto order_of = [&](const Outcome& outcome) { return std::tuple(!is_in_host(outcome), outcome.needed); };
        if (!tried.leanest || order_of(*each.simulated) < order_of(tried.leanest->outcome)) {
          tried.leanest = entry_of(each);
        }
      }
      plan_.surveyed += tried.surveyed;
      plan_.simulated += tried.simulated;
    }
    for (auto& [rule, count] : rejected_) plan_.rejections.push_back({rule, count});
    std::stable_sort(plan_.rejections.begin(), plan_.rejections.end(),
                     [](const Rejection& a, const Rejection& b) { return a.count > b.count; });
    plan_.complete = !control_.stopped();
  }

  /// Of one that is not in the front.
  [[nodiscard]] std::string reason_against(const Contender& each) const {
    const Outcome* known = each.known();
    if (known == nullptr) return kNotReached;
    if (!known->answered()) return known->rule;
    if (!is_in_host(*known)) return "more than the host's memory";
    const std::string how = each.simulated ? "simulated: " : "surveyed: ";
    if (!known->fits()) return how + "more than the card";
    return how + "another is as fast and needs no more, or it takes twice as long";
  }

  PlanQuestion question_;
  const SearchControl& control_;
  std::vector<Choice> choices_;
  ClosedForms forms_;
  std::vector<PlanSearch> searches_;
  std::vector<Contender*> pool_;  // those that were surveyed
  std::map<std::string, std::size_t> rejected_;
  Plan plan_;
};

void check(const PlanQuestion& question) {
  constexpr std::int64_t kMostSequences = std::int64_t{1} << 20;
  // ZeRO's shares are counted rank by rank, so a simulation takes longer with each: 64 of 65,536 ranks are 4 s of
  // processor time, and beyond them there is no answer in 5 s.
  constexpr std::int64_t kMostPlanned = kMostGpus / 2;
  const auto refuse = [](const char* what, std::int64_t most, std::int64_t found, const char* why) {
    throw Error(ErrorCode::kUsage, std::string(what) + ": expected a whole number from 1 to " + std::to_string(most) +
                                       ", found " + std::to_string(found) + why);
  };
  if (!question.run.trains()) throw Error(ErrorCode::kUsage, "plan: expected a run that trains, found inference");
  if (question.gpus < 1 || question.gpus > kMostPlanned) {
    refuse("gpus", kMostPlanned, question.gpus, " (a plan for more takes too long: each rank is counted)");
  }
  if (question.global_batch < 1 || question.global_batch > kMostSequences) {
    refuse("global batch", kMostSequences, question.global_batch, "");
  }
  if (question.nodes < 1 || question.gpus % question.nodes != 0) {
    throw Error(ErrorCode::kUsage,
                "nodes " + std::to_string(question.nodes) + " does not divide gpus " + std::to_string(question.gpus));
  }
  if (question.emit == Emit::kTrainer && !has_trainer_name(question.run.training().optimizer)) {
    throw Error(ErrorCode::kUsage, "emit trainer: the Trainer has no name for the optimizer " +
                                       std::string(name_of(question.run.training().optimizer)));
  }
}

}  // namespace

Plan make_plan(const PlanQuestion& question, const SearchControl& control) {
  check(question);
  return Planner(question, control).run();
}

}  // namespace memcalc
