#include "memcalc/spec/rules.h"

#include <fmt/core.h>

#include <array>
#include <variant>

#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/rule_tables.h"
#include "memcalc/spec/run_fields.h"

namespace memcalc {
namespace {

std::string count_of(const std::optional<std::int64_t>& number) { return number ? fmt::format("{}", *number) : "no"; }

std::string value_of(std::string_view name, const Rule& rule, const RuleQuestion& question) {
  if (name.empty()) return rule.detail != nullptr ? rule.detail(question) : "";
  if (name == "model") return question.model.name;
  if (name == "family") return question.model.model_type;
  if (name == "layers") return count_of(question.sizes.layers);
  if (name == "heads") return count_of(question.sizes.heads);
  if (name == "kv_heads") return count_of(question.sizes.key_value_heads);
  if (name == "experts") return count_of(question.sizes.experts);
  const Field* field = find_field(name);
  if (field == nullptr) throw Error(ErrorCode::kInternal, fmt::format("rule {}: no option {}", rule.id, name));
  const auto value = field->get(RunRecord{question.model, question.run});
  return value ? text_of(*value) : "none";
}

std::string filled(std::string_view text, const Rule& rule, const RuleQuestion& question) {
  std::string result;
  while (!text.empty()) {
    const std::size_t open = std::min(text.find('{'), text.size());
    result += text.substr(0, open);
    text.remove_prefix(open);
    if (text.empty()) break;
    const std::size_t close = text.find('}');
    result += value_of(text.substr(1, close - 1), rule, question);
    text.remove_prefix(close + 1);
  }
  return result;
}

}  // namespace

std::span<const RuleGroup> rule_groups() {
  static const std::vector<RuleGroup> groups = [] {
    std::vector<RuleGroup> all;
    for (const auto groups_of : kRuleTables) {
      for (const RuleGroup& each : groups_of()) all.push_back(each);
    }
    return all;
  }();
  return groups;
}

std::string with_accepted(std::string message, const std::string& accepted) {
  if (!accepted.empty()) message += "; accepted: " + accepted;
  return message;
}

std::string first_option(std::string_view options) { return std::string(options.substr(0, options.find(' '))); }

std::string message_of(const Rule& rule, const RuleQuestion& question) {
  return with_accepted(filled(rule.message, rule, question), filled(rule.accepted, rule, question));
}

SharedSizes shared_sizes(const ModelSpec& model) {
  const Dimensions d = model.architecture.dimensions();
  return {.layers = is_decoder(model) ? d.layers : std::nullopt,
          .heads = d.heads,
          .key_value_heads = d.key_value_heads,
          .experts = d.experts};
}

namespace {

const Rule* broken_rule(const RuleQuestion& question) {
  for (const RuleGroup& group : rule_groups()) {
    if (group.concerns != nullptr && !group.concerns(question)) continue;
    for (const Rule& rule : group.rules) {
      if (rule.broken(question)) return &rule;
    }
  }
  return nullptr;
}

}  // namespace

const Rule* broken_rule(const ModelSpec& model, const RunSpec& run) {
  return broken_rule(RuleQuestion{model, run, run.parallel, shared_sizes(model)});
}

void check_rules(const ModelSpec& model, const RunSpec& run) {
  const RuleQuestion question{model, run, run.parallel, shared_sizes(model)};
  const Rule* rule = broken_rule(question);
  if (rule == nullptr) return;
  throw Error(rule->code, message_of(*rule, question), first_option(rule->options), std::string(rule->id));
}

}  // namespace memcalc
