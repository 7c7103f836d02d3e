// What peft makes of the names in LoraConfig where transformers 5 has a mixture's router and experts as parameters that
// were nn.Linear before: it targets those parameters. Covered by tests/unit/peft_targets_test.cc.
// MIRRORS(peft, "utils/transformers_weight_conversion.py", "0.21.2")
// MIRRORS(transformers, "conversion_mapping.py", "5.17.0")
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/model_spec.h"

namespace memcalc {

namespace rules {
extern const BuiltRule kLoraFused, kLoraAllLinear, kLoraParameterDropout, kLoraParameterDora, kLoraParameterCompiled,
    kLoraParameterGathered, kLoraParameterPacked, kLoraPattern, kLoraSaved;  // built_rules.cc
}

/// peft's word for every linear layer but the head.
inline constexpr std::string_view kAllLinear = "all-linear";

/// A module of transformers 4, and what it is since.
struct RenamedTarget {
  std::string_view module;     // "w1"
  std::string_view parameter;  // "gate_up_proj"
};

/// Of one pattern of mixtures: _MOE_TARGET_MODULE_MAPPING.
struct ConvertedTargets {
  std::span<const RenamedTarget> renamed;

  /// The parameter that a target became; empty: the target is what it was.
  [[nodiscard]] std::string_view parameter_of(std::string_view target) const;
  /// Whether two modules became this parameter: its adapter has the ranks of both (rank_pattern).
  [[nodiscard]] bool is_fused(std::string_view parameter) const;
};

/// Null: peft targets the model's modules by the names they are given.
[[nodiscard]] const ConvertedTargets* converted_targets(const ModelSpec& model);

/// Before a pattern in --lora-targets: LoraConfig's target_modules as a string.
inline constexpr std::string_view kPatternPrefix = "re:";

/// What peft does with such a string: re.fullmatch(pattern, name of the module).
class NamePattern {
 public:
  /// Throws Error(kUnsupported) for what is no regular expression of ECMAScript. Python's are alike but for groups with
  /// names, flags within the pattern, and looking behind.
  explicit NamePattern(const std::string& pattern);
  [[nodiscard]] bool matches(std::string_view name) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

/// Of the targets of --lora-targets; nothing where they are names.
[[nodiscard]] std::optional<NamePattern> pattern_of(const std::vector<std::string>& targets);

/// Whether a module's or a parameter's name is `target`, or ends in it after a dot.
[[nodiscard]] bool ends_in_target(std::string_view name, std::string_view target);

}  // namespace memcalc
