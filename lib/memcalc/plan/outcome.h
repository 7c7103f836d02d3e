// What the planner keeps of an estimate. Covered by tests/unit/sweep_test.cc.
#pragma once

#include <array>
#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memcalc/memcalc.h"
#include "memcalc/plan/search_control.h"

namespace memcalc {

/// How fast a run is; of all its GPUs together.
struct Speed {
  double step_seconds = 0;
  double least_seconds = 0, most_seconds = 0;  // on the quickest and the slowest of the measured hosts
  double samples_per_second = 0;
  double tokens_per_second = 0;  // 0 where samples are images
  double mfu = 0;
};

/// Why there is no answer for one of many.
struct Refusal {
  std::string reason;      // empty: there is an answer
  bool own_fault = false;  // a bug of memcalc, not of the question; the reason says so
  std::string rule;        // the id of the rule that is broken (spec/rules.h); of another reason: the reason
};

/// What a row says of the exception that its question ended in.
[[nodiscard]] Refusal refusal_of(const std::exception& error);

struct Outcome {
  std::string refusal;     // why there is no estimate: not possible or not modelled; the rest is then empty
  bool own_fault = false;  // Refusal::own_fault
  std::string rule;        // Refusal::rule
  Bytes allocated = 0;     // peaks, of the rank that needs most
  Bytes reserved = 0;
  Bytes needed = 0;    // what the card must have: reserved, context, kernels
  Bytes headroom = 0;  // memory of the card less `needed`; negative where it does not fit
  Bytes error = 0;     // how far `needed` may be off, either way
  Verdict verdict = Verdict::kDoesNotFit;
  bool starts = true;        // Report::starts()
  bool built_whole = false;  // the peak is the whole model at its construction, before it is sharded
  std::array<Bytes, kCategoryCount> categories{};  // at the peak of allocated
  Bytes slack = 0;                                 // the rest of it
  Bytes host = 0;                                  // of the rank's host: batches and what is offloaded
  std::optional<Speed> speed;                      // where the card's rates are known and all of the run is timed
  [[nodiscard]] bool answered() const { return refusal.empty(); }
  [[nodiscard]] bool fits() const { return verdict == Verdict::kFits; }
};

[[nodiscard]] Outcome outcome_of(const Report& report);

/// Of a question that ended in this exception.
[[nodiscard]] Outcome refused(const std::exception& error);

/// The outcome of a sharded run whose model is made on the meta device, so that no rank ever holds it whole: the peak
/// of the steps themselves. What is reserved is then not known, and taken as what is allocated. Others: unchanged.
[[nodiscard]] Outcome without_construction(const Report& report, Outcome outcome);

/// A run to be estimated.
struct Candidate {
  ModelSpec model;
  RunSpec run;
  DeviceSpec device;
  bool built_on_meta = false;  // see without_construction()
};

/// estimate(), where an exception is an outcome, too: one of many that cannot be answered ends none of the others.
[[nodiscard]] Outcome outcome_of(const Candidate& candidate);

/// One after the other on each of the threads; null where it was stopped before.
[[nodiscard]] std::vector<std::optional<Outcome>> outcomes_of(std::span<const Candidate> candidates,
                                                              const SearchControl& control);

}  // namespace memcalc
