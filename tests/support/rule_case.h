// Runs that break a rule each: a test of a file of rules is a table of them, with at least one for every rule.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>
#include <string_view>

#include "memcalc/spec/lit_config.h"
#include "memcalc/spec/registry.h"
#include "memcalc/spec/rules.h"
#include "memcalc/spec/run_options.h"
#include "support/paths.h"

namespace memcalc::test {

/// A run of `model` that breaks `rule` once `change` has been made, and none without it.
struct RuleCase {
  std::string_view rule;
  std::string_view model;  // of the registry; "litgpt": LLaMA as LitGPT builds it; "layers/NAME": of specs/examples
  void (*change)(RunSpec& run);
  RunOptions options = {};  // of the run before the change; a plain loop unless they say otherwise
};

[[nodiscard]] inline ModelSpec model_of(std::string_view name) {
  const SpecRegistry registry(specs_dir().string());
  constexpr std::string_view kLayers = "layers/";
  if (name.starts_with(kLayers)) {
    return registry.model((specs_dir() / "examples" / (std::string(name.substr(kLayers.size())) + ".json")).string());
  }
  ModelSpec model = registry.model(name == kLitGptType ? "llama-3.2-1b" : std::string(name));
  model.checkpoint_dtype.reset();  // a case says itself what its weights are
  if (name != kLitGptType) return model;
  model.model_type = kLitGptType;
  return model;
}

/// The Error of the rule that a run breaks first; its rule is empty where it breaks none.
[[nodiscard]] inline Error first_broken(const ModelSpec& model, const RunSpec& run) {
  try {
    check_rules(model, run);
  } catch (const Error& error) {
    return error;
  }
  return {ErrorCode::kInternal, "accepted"};
}

/// Each case breaks its rule, is told so in one line whose every value is filled in, and there is one for every rule.
inline void expect_each_rule_broken(std::span<const RuleGroup> groups, std::span<const RuleCase> cases) {
  std::set<std::string_view> without;
  for (const RuleGroup& group : groups) {
    for (const Rule& rule : group.rules) without.insert(rule.id);
  }
  for (const RuleCase& each : cases) {
    SCOPED_TRACE(each.rule);
    const ModelSpec model = model_of(each.model);
    RunOptions options = each.options;
    if (!options.loop) options.loop = Loop::kBare;
    RunSpec run = resolve(model, options).run;
    EXPECT_STREQ(first_broken(model, run).what(), "accepted") << "before the change";
    each.change(run);
    const Error error = first_broken(model, run);
    EXPECT_EQ(error.rule(), each.rule) << error.what();
    EXPECT_THAT(error.what(), ::testing::Not(::testing::ContainsRegex("[{}\n]")));
    EXPECT_THAT(error.what(), ::testing::HasSubstr("; accepted: "));
    without.erase(each.rule);
  }
  EXPECT_THAT(without, ::testing::IsEmpty()) << "a run that breaks it is missing";
}

}  // namespace memcalc::test
