#include "memcalc/plan/plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "memcalc/plan/closed_form.h"
#include "memcalc/plan/plan_space.h"
#include "memcalc/spec/limits.h"
#include "memcalc/spec/rules.h"
#include "memcalc/spec/run_names.h"

namespace memcalc {
namespace {

constexpr std::size_t kWave = 8;  // candidates that are simulated before the next decision: the same on any threads

/// Whether `a` needs at least what `b` needs: larger micro-batches, and parameters that are kept, of the same run.
bool needs_no_less(const PlanQuestion& question, const Choice& a, const Choice& b) {
  if (a.micro_batch < b.micro_batch || (a.reshard && !b.reshard)) return false;
  Choice alike = a;
  alike.micro_batch = b.micro_batch;
  alike.reshard = b.reshard;
  if (!(alike == b)) return false;
  // Where micro-batches accumulate, gradients lie beside activations.
  return micro_batches_of(question, a) > 1 || micro_batches_of(question, b) == 1;
}

/// Whether two differ in sizes alone, so that what one needs beyond its bound tells of the other.
bool is_alike(const Choice& a, const Choice& b) {
  return a.way == b.way && a.data_parallel == b.data_parallel && a.reshard == b.reshard &&
         a.checkpointing == b.checkpointing && a.checkpoint_every == b.checkpoint_every &&
         a.offload_activations == b.offload_activations && a.offload_states == b.offload_states &&
         a.offload_parameters == b.offload_parameters && (a.pipeline > 1) == (b.pipeline > 1);
}

/// What became of one candidate before it was simulated.
struct Sifted {
  std::string rule;  // empty: still in
  double least = 0;
  double ranking = 0;
};

class Planner {
 public:
  Planner(const PlanQuestion& question, const SearchControl& control)
      : question_(question),
        control_(control),
        forms_(closed_forms_of(question, control)),
        choices_(choices_of(question)) {
    plan_.candidates = choices_.size();
  }

  [[nodiscard]] Plan run() {
    simulate(sift());
    keep_front();
    for (auto& [rule, count] : rejected_) plan_.rejections.push_back({rule, count});
    std::stable_sort(plan_.rejections.begin(), plan_.rejections.end(),
                     [](const Rejection& a, const Rejection& b) { return a.count > b.count; });
    return std::move(plan_);
  }

 private:
  /// The candidates that may fit, by the closed form.
  struct Order {
    std::vector<std::size_t> fastest;  // first
    std::vector<std::size_t> smallest;
  };
  Order sift() {
    std::vector<Sifted> sifted(choices_.size());
    constexpr std::size_t kPart = 1024;  // candidates at a time: their work is short
    const SearchControl quiet{.threads = control_.threads, .progress = {}, .stop = control_.stop};
    plan_.complete = for_each_index((choices_.size() + kPart - 1) / kPart, quiet, [&](std::size_t part) {
      const std::size_t end = std::min(choices_.size(), (part + 1) * kPart);
      for (std::size_t i = part * kPart; i < end; ++i) sifted[i] = sifted_of(choices_[i]);
    });
    std::vector<std::size_t> left;
    for (std::size_t i = 0; i < sifted.size(); ++i) {
      if (!plan_.complete && sifted[i].rule.empty() && sifted[i].least == 0) continue;  // not reached
      if (sifted[i].rule.empty()) {
        left.push_back(i);
      } else {
        ++rejected_[sifted[i].rule];
      }
    }
    Order order{left, left};
    std::stable_sort(order.fastest.begin(), order.fastest.end(), [&](std::size_t a, std::size_t b) {
      return std::tie(sifted[a].ranking, sifted[a].least) < std::tie(sifted[b].ranking, sifted[b].least);
    });
    std::stable_sort(order.smallest.begin(), order.smallest.end(), [&](std::size_t a, std::size_t b) {
      return std::tie(sifted[a].least, sifted[a].ranking) < std::tie(sifted[b].least, sifted[b].ranking);
    });
    return order;
  }

  [[nodiscard]] Sifted sifted_of(const Choice& choice) const {
    if (const char* rule = contradiction_in(question_, choice)) return {rule, 0, 0};
    if (const char* rule = unsaid_in_settings(question_, choice)) return {rule, 0, 0};
    const ClosedForm* form = forms_.of(choice);
    if (form == nullptr) return {forms_.refusals[static_cast<std::size_t>(choice.way)], 0, 0};
    Sifted sifted;
    sifted.least = least_bytes(*form, question_, choice);
    if (sifted.least > static_cast<double>(question_.device.usable_bytes())) {
      return {"more than the card by the closed form alone", 0, 0};
    }
    if (const Rule* rule = broken_rule(question_.model, run_of(question_, choice))) {
      return {std::string(rule->id), 0, 0};
    }
    sifted.ranking = ranking_seconds(*form, question_, choice);
    return sifted;
  }

  /// In waves, most promising first, until the limit. Every eighth of a wave is one of the smallest, so that the front
  /// does not end early, and so that what fits alone is found.
  void simulate(const Order& order) {
    const std::size_t count = order.fastest.size();
    std::vector<bool> taken(choices_.size(), false);
    std::size_t left = count, fastest = 0, smallest = 0;
    const auto next_of = [&](const std::vector<std::size_t>& sorted, std::size_t& place) {
      while (taken[sorted[place]]) ++place;
      taken[sorted[place]] = true;
      --left;
      return sorted[place];
    };
    while (left > 0 && plan_.simulated < question_.simulated && !control_.stopped()) {
      std::vector<std::size_t> wave;
      while (wave.size() < std::min(kWave, question_.simulated - plan_.simulated) && left > 0) {
        const std::size_t next =
            wave.size() % kWave == kWave - 1 ? next_of(order.smallest, smallest) : next_of(order.fastest, fastest);
        if (is_too_large(choices_[next])) {
          ++rejected_["more than the card: a smaller one was simulated"];
        } else if (likely_bytes(choices_[next]) > static_cast<double>(question_.device.usable_bytes())) {
          ++rejected_["likely more than the card, as one like it was: not simulated"];
        } else {
          wave.push_back(next);
        }
      }
      std::vector<std::optional<Outcome>> outcomes(wave.size());
      const SearchControl counted{.threads = control_.threads,
                                  .progress =
                                      [&](std::size_t done, std::size_t) {
                                        if (control_.progress) {
                                          control_.progress(plan_.simulated + done,
                                                            std::min(question_.simulated, count));
                                        }
                                      },
                                  .stop = control_.stop};
      (void)for_each_index(wave.size(), counted, [&](std::size_t i) {
        outcomes[i] =
            outcome_of(Candidate{question_.model, run_of(question_, choices_[wave[i]]), question_.device, true});
      });
      for (std::size_t i = 0; i < wave.size(); ++i) {
        if (outcomes[i]) judge(choices_[wave[i]], *std::move(outcomes[i]));
      }
    }
    if (left > 0) rejected_["not among the most promising: not simulated (--simulate)"] += left;
    plan_.complete = plan_.complete && !control_.stopped();
  }

  [[nodiscard]] bool is_too_large(const Choice& choice) const {
    return std::any_of(too_large_.begin(), too_large_.end(),
                       [&](const Choice& each) { return needs_no_less(question_, choice, each); });
  }

  /// What a candidate needs if it exceeds its bound as little as the nearest to it of those that did not fit.
  [[nodiscard]] double likely_bytes(const Choice& choice) const {
    double excess = 0;
    for (const Failure& each : failures_) {
      if (is_alike(choice, each.choice)) excess = excess == 0 ? each.excess : std::min(excess, each.excess);
    }
    return excess * least_bytes(*forms_.of(choice), question_, choice);
  }

  void judge(const Choice& choice, Outcome outcome) {
    ++plan_.simulated;
    if (outcome.own_fault) ++plan_.own_faults;
    if (outcome.answered() && !outcome.fits()) {
      const double least = std::max(1.0, least_bytes(*forms_.of(choice), question_, choice));
      failures_.push_back({choice, static_cast<double>(outcome.needed) / least});
    }
    if (!outcome.answered()) {
      ++rejected_[outcome.rule];
    } else if (!outcome.fits()) {
      ++rejected_["simulated: more than the card"];
      // What is reserved may be less for more; what is allocated is not.
      if (outcome.allocated > question_.device.usable_bytes()) too_large_.push_back(choice);
    } else {
      ++plan_.fitting;
      plan_.front.push_back(
          {run_of(question_, choice), std::move(outcome), ranking_seconds(*forms_.of(choice), question_, choice)});
    }
  }

  void keep_front() {
    std::vector<PlanEntry>& all = plan_.front;
    // A closed form is no rival of a prediction: what has none stands behind, where it needs less.
    const auto order_of = [](const PlanEntry& each) {
      return std::tuple(!each.outcome.speed.has_value(), each.seconds(), each.outcome.needed);
    };
    std::stable_sort(all.begin(), all.end(),
                     [&](const PlanEntry& a, const PlanEntry& b) { return order_of(a) < order_of(b); });
    std::vector<PlanEntry> front;
    for (PlanEntry& each : all) {
      if (front.empty() || each.outcome.needed < front.back().outcome.needed) {
        front.push_back(std::move(each));
      } else {
        ++rejected_["simulated: another is as fast and needs no more"];
      }
    }
    all = std::move(front);
  }

  PlanQuestion question_;
  const SearchControl& control_;
  ClosedForms forms_;
  std::vector<Choice> choices_;
  /// Simulated and too large: how many times its bound it needs.
  struct Failure {
    Choice choice;
    double excess = 1;
  };
  std::vector<Failure> failures_;
  std::vector<Choice> too_large_;  // simulated, with more allocated than there is
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
