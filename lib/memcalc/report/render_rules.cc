#include "memcalc/report/render_rules.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "memcalc/spec/built_rules.h"
#include "memcalc/spec/rules.h"
#include "memcalc/spec/run_fields.h"

namespace memcalc {
namespace {

constexpr std::string_view kHead =
    "# What goes with what\n\n"
    "Each choice that memcalc refuses, by the name of its rule. `memcalc plan` counts refused candidates by these "
    "names, and "
    "Python's `Error.rule` is one of them. Words in *italics* stand for values of the run. Written by `memcalc "
    "completion "
    "rules` from the tables in `lib/memcalc/spec/`: do not edit.\n";

/// "{--tp} ranks of {model}" with its placeholders in italics: "*tp* ranks of *model*".
std::string shown(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '|') result += '\\';
    if (text[i] != '{') {
      result += text[i];
      continue;
    }
    const std::size_t close = text.find('}', i);
    std::string_view name = text.substr(i + 1, close - i - 1);
    if (name.starts_with("--")) name.remove_prefix(2);
    result += name.empty() ? "…" : fmt::format("*{}*", name);
    i = close;
  }
  return result;
}

std::string options_of(std::string_view options) {
  std::string text;
  while (!options.empty()) {
    const std::size_t end = std::min(options.find(' '), options.size());
    text += fmt::format("{}`{}`", text.empty() ? "" : " ", options.substr(0, end));
    options.remove_prefix(std::min(end + 1, options.size()));
  }
  return text;
}

/// Of a Rule or a BuiltRule.
template <typename AnyRule>
std::string row_of(const AnyRule& rule) {
  return fmt::format("| `{}` | {} | {} | {} |\n", rule.id, options_of(rule.options), shown(rule.message),
                     shown(rule.accepted));
}

std::string name_of(const Field& field) {
  if (field.group == FieldGroup::kMegatron) return fmt::format("--megatron {}", field.flag);
  if (field.group == FieldGroup::kDeepSpeed) return fmt::format("--deepspeed {}", field.flag);
  return std::string(field.flag);
}

}  // namespace

std::string render_rules() {
  std::string page(kHead);
  for (const RuleGroup& group : rule_groups()) {
    page += fmt::format("\n## {}\n| rule | options | what is refused | accepted |\n| --- | --- | --- | --- |\n",
                        group.title);
    for (const Rule& rule : group.rules) page += row_of(rule);
  }
  page +=
      "\n## What only the built model tells\n"
      "These look at its layers, parameters and tensors.\n\n"
      "| rule | options | what is refused | accepted |\n| --- | --- | --- | --- |\n";
  for (const BuiltRule* rule : built_rules()) page += row_of(*rule);
  page +=
      "\n## Options that exist in some runs alone\n"
      "Elsewhere they would change nothing, so they are refused (rule `KEY-exists`).\n\n"
      "| option | belongs to |\n| --- | --- |\n";
  for (const Field& field : run_fields()) {
    if (field.exists != nullptr) page += fmt::format("| `{}` | {} |\n", name_of(field), shown(field.belongs_to));
  }
  return page;
}

}  // namespace memcalc
