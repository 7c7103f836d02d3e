// The plan: of all ways to run a training on some GPUs, which fit, and which of those is fastest for its memory.
// The space is what estimate() accepts: every candidate is put to validate(), so a mode that the library learns is
// searched without a change here. What may fit is looked at by short models (short_model.h), and what is recommended
// was simulated whole. Covered by tests/measured/plan_test.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "memcalc/plan/outcome.h"
#include "memcalc/plan/search_control.h"
#include "memcalc/plan/settings.h"
#include "memcalc/report/answer.h"

namespace memcalc {

/// What the usual host of a card has (specs/hosts.json), or what the user says.
struct HostLimit {
  Bytes bytes_per_gpu = 0;  // 0: not known, so that nothing is refused for it
  std::string source;
};

/// --tokens and --price: of the whole training.
struct WholeTraining {
  double tokens = 0;                // 0: not asked
  double dollars_per_gpu_hour = 0;  // 0: no price is known
  std::string price_source;
};

struct PlanQuestion {
  ModelSpec model;
  RunSpec run;  // precision, optimizer, sequence, …; its batch, accumulation, checkpointing and parallel are searched
  DeviceSpec device;
  std::int64_t gpus = 1;
  std::int64_t nodes = 1;
  std::int64_t global_batch = 1;  // sequences per optimizer step, of all GPUs
  HostLimit host;                 // for what is offloaded
  WholeTraining whole;
  double link_bytes_per_second = 450e9;    // of a GPU within a host, one direction, for the ranking
  double network_bytes_per_second = 50e9;  // of a GPU between hosts (400 Gb/s each)
  std::vector<Framework> frameworks = {Framework::kTorch, Framework::kDeepSpeed, Framework::kMegatron};  // searched
  std::size_t surveyed = 128;  // candidates of each framework that are looked at, by short models, at most
  Emit emit = Emit::kNothing;  // only what these settings can say is searched
};

/// Candidates that one rule took out.
struct Rejection {
  std::string rule;
  std::size_t count = 0;
};

struct PlanEntry {
  RunSpec run;
  Outcome outcome;
  double ranking_seconds = 0;  // closed form: work and traffic at the datasheet's rates; no prediction
  int strangeness = 0;         // plan/plainness.h
  /// The predicted step where there is one, else the closed form.
  [[nodiscard]] double seconds() const { return outcome.speed ? outcome.speed->step_seconds : ranking_seconds; }
};

/// What was tried of a framework.
struct Tried {
  Framework framework = Framework::kTorch;
  std::size_t candidates = 0;
  std::size_t surveyed = 0;   // by short models
  std::size_t simulated = 0;  // whole
  /// The simulated one that needs least; it may fit and yet not be recommended.
  std::optional<PlanEntry> leanest;
  std::string refused;  // where nothing was simulated: the rule that took out most
};

struct Plan {
  /// First what is recommended: the plainest that is as fast as any. Then those of which no other that fits is as fast
  /// and needs clearly less, the fastest first.
  std::vector<PlanEntry> front;
  std::size_t candidates = 0;
  std::size_t surveyed = 0;
  std::size_t simulated = 0;
  std::size_t fitting = 0;            // of those that were simulated
  std::size_t own_faults = 0;         // looked at, and ended in a bug of memcalc
  std::vector<Tried> tried;           // each allowed framework
  std::vector<Rejection> rejections;  // the most frequent first
  bool complete = true;               // false: stopped
  std::vector<std::string> assumptions;
  std::vector<std::string> not_modelled;
};

/// The same on any number of threads. Throws Error(kUsage) for numbers out of range, and what estimate() throws for the
/// model on one GPU with batch 1.
[[nodiscard]] Plan make_plan(const PlanQuestion& question, const SearchControl& control = {});

/// With `emit`, the first of the front as settings to copy.
[[nodiscard]] Answer answer_of(const PlanQuestion& question, const Plan& plan, Emit emit = Emit::kNothing);

}  // namespace memcalc
