// Rules: which choices of a run go together. A refusal is a row with a name: the library throws it, the planner counts
// it, Python takes Error.part from it, and docs/what-goes-with-what.md lists it. Rows stand in rules_*.cc.
// Covered by tests/unit/rules_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "memcalc/base/error.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Sizes of a model that ranks share; absent where the family has no such thing.
struct SharedSizes {
  std::optional<std::int64_t> layers;           // of a decoder that can be cut into stages
  std::optional<std::int64_t> heads;            // attention heads
  std::optional<std::int64_t> key_value_heads;  // as many as heads where they are not grouped
  std::optional<std::int64_t> experts;          // of each layer that has some
};

/// What rules look at: a model and a resolved run.
struct RuleQuestion {
  const ModelSpec& model;
  const RunSpec& run;
  const Parallel& parallel;  // of the run
  SharedSizes sizes;
};

/// A combination that is refused, because the framework refuses it, because it changes nothing, or because it is not
/// modelled; the message says which.
struct Rule {
  std::string_view id;       // "tp-splits-heads": names the rule for good
  std::string_view options;  // that it speaks of, by spaces: "--tp --model"; the first one is Error.part
  /// What is wrong, one sentence without a full stop. {--tp}: the run's value of an option; {model}, {family},
  /// {layers}, {heads}, {kv_heads}, {experts}: of the model; {}: what `detail` says.
  std::string_view message;
  std::string_view accepted;  // what to give instead; empty: the message says it
  bool (*broken)(const RuleQuestion& question);
  std::string (*detail)(const RuleQuestion& question) = nullptr;
  ErrorCode code = ErrorCode::kUsage;  // kUnsupported: possible, but not modelled
  bool is_limit = false;               // of memcalc alone: smaller sizes are answered, and larger ones would run
};

/// Rules of one noun. They are looked at in their order, and only where the group concerns the run.
struct RuleGroup {
  std::string_view title;  // "Tensor parallelism (torch)"
  bool (*concerns)(const RuleQuestion& question);
  std::span<const Rule> rules;
};

/// All groups, in the order in which they are looked at.
[[nodiscard]] std::span<const RuleGroup> rule_groups();

/// "message; accepted: what"; the message alone where nothing is accepted.
[[nodiscard]] std::string with_accepted(std::string message, const std::string& accepted);

/// Of a rule's options the first, which its Error is about.
[[nodiscard]] std::string first_option(std::string_view options);

/// The message of a rule for this run: "…; accepted: …".
[[nodiscard]] std::string message_of(const Rule& rule, const RuleQuestion& question);

[[nodiscard]] SharedSizes shared_sizes(const ModelSpec& model);

/// The first rule that a run breaks; null: none.
[[nodiscard]] const Rule* broken_rule(const ModelSpec& model, const RunSpec& run);

/// Throws the first rule that is broken, as an Error with its id and its first option.
void check_rules(const ModelSpec& model, const RunSpec& run);

}  // namespace memcalc
