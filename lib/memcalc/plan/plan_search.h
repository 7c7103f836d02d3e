// The search of a plan among the candidates of one framework: which of them are looked at. Each look is a survey by
// short models (short_model.h); what is known of the candidates nearest to one tells what to expect of it. That orders
// candidates, it drops none. Covered by tests/measured/plan_test.cc.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "memcalc/plan/plan_space.h"
#include "memcalc/plan/search_control.h"
#include "memcalc/plan/short_model.h"

namespace memcalc {

/// A candidate that is still in.
struct Contender {
  Choice choice;
  double least = 0;                    // bytes: it needs no less (closed_form.h)
  double likely = 0;                   // bytes: no bound
  double ranking_seconds = 0;          // closed_form.h
  std::unique_ptr<Survey> survey;      // by pointer: of a hundred thousand, some hundred are looked at
  std::unique_ptr<Outcome> simulated;  // whole

  /// By what is known of it best.
  [[nodiscard]] const Outcome* known() const {
    if (simulated) return simulated.get();
    return survey ? &survey->outcome : nullptr;
  }
};

/// How much two candidates differ; below 1: in sizes alone.
[[nodiscard]] double distance_of(const PlanQuestion& question, const Choice& a, const Choice& b);

class PlanSearch {
 public:
  PlanSearch(const PlanQuestion& question, std::vector<Contender> contenders);

  /// Surveys contenders, most promising first, until `most` were surveyed, or none is expected to be better. Reports
  /// how many were.
  void survey(std::size_t most, const SearchControl& control);

  [[nodiscard]] std::vector<Contender>& contenders() { return contenders_; }
  [[nodiscard]] std::size_t surveyed() const { return surveyed_; }

 private:
  struct Expectation {
    double distance = 1e9;  // to the nearest that was surveyed
    double share = 0.7;     // of what likely() has beyond the bound that it needs
    double ratio = 1;       // its seconds over the closed form's
    double timed_distance = 1e9;
    double refused_distance = 1e9;  // to the nearest that the library refused when it built it
  };
  struct Promise {
    std::size_t place;
    double bytes;
    double seconds;
    bool doubtful;  // one that differs in sizes alone was refused: it comes last
  };

  [[nodiscard]] std::vector<std::size_t> next_wave() const;
  [[nodiscard]] double expected_bytes(std::size_t place) const;
  [[nodiscard]] double expected_seconds(std::size_t place) const;
  [[nodiscard]] bool worth_a_look(const std::vector<Promise>& hopeful) const;
  void learn_from(std::size_t place);

  const PlanQuestion& question_;
  std::vector<Contender> contenders_;
  std::vector<Expectation> expected_;
  std::size_t surveyed_ = 0;
  std::size_t refused_ = 0;  // of these
  double fastest_ = 0;       // of those that fit by their survey; 0: none does
};

}  // namespace memcalc
