#include "run_arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <utility>

#include "arguments.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

// Where descriptions start in --help: with at most 56 characters each they end within 80 columns.
constexpr std::size_t kHelpColumn = 24;

CLI::Option* add(CLI::App& command, FieldGroup group, std::string_view flag, std::string_view value,
                 std::string_view help) {
  const std::string name(flag);
  CLI::Option* option = value.empty() ? command.add_flag(name)->disable_flag_override()
                                      : command.add_option(name)->type_name(std::string(value));
  return option->description(std::string(help))->group(std::string(title_of(group)));
}

/// What was typed for an option; empty where its value was left out.
std::string text_of(const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return "";
  const std::string& text = option.results().front();
  const bool left_out = option.get_items_expected_min() == 0 && (text == "true" || text == "{}");  // what CLI11 stores
  return left_out ? "" : text;
}

}  // namespace

void add_run_options(CLI::App& command, RunArguments& arguments, bool data) {
  command.get_formatter()->column_width(kHelpColumn);
  for (const Field& field : run_fields()) {
    if (field.group == FieldGroup::kMegatron || field.group == FieldGroup::kDeepSpeed) continue;
    if (field.group == FieldGroup::kTime && !data) continue;
    CLI::Option* option = add(command, field.group, field.flag, field.value, field.help);
    if (may_lack_value(field)) option->expected(0, 1);
    arguments.options.push_back(option);
    if (!field.negative.empty()) {
      arguments.options.push_back(add(command, field.group, field.negative, "", field.negative_help));
    }
    if (field.key == "micro_batches") {
      for (const auto& [list, help] : {std::pair{"--megatron", "Megatron's own arguments: name or name=value, …"},
                                       std::pair{"--deepspeed", "its zero_optimization: name=value, …"}}) {
        arguments.options.push_back(add(command, FieldGroup::kParallel, list, "LIST", help));
      }
    }
  }
  command.add_option("--specs", arguments.specs, "directory of models/, gpus/ [$MEMCALC_SPEC_PATH]")
      ->type_name("DIR")
      ->group(std::string(title_of(FieldGroup::kCard)));
}

std::vector<TypedOption> RunArguments::typed() const {
  std::vector<TypedOption> typed;
  for (const CLI::Option* option : options) {
    if (option->count() > 0) typed.push_back({"--" + option->get_lnames().front(), text_of(*option)});
  }
  return typed;
}

bool is_typed(const std::vector<TypedOption>& typed, std::string_view flag) {
  return std::any_of(typed.begin(), typed.end(), [&](const TypedOption& each) { return each.flag == flag; });
}

RunRequest request_of(const std::vector<TypedOption>& typed) {
  RunRequest request;
  for (const auto& [flag, text] : typed) set_option(request, flag, text);
  return request;
}

Question question_of(const RunArguments& arguments) { return question_of(arguments.typed(), arguments.specs); }

Question question_of(const std::vector<TypedOption>& typed, const std::string& specs) {
  return question_of(request_of(typed), SpecRegistry(find_specs(specs)));
}

std::vector<TypedOption> without(std::vector<TypedOption> typed, std::initializer_list<std::string_view> flags) {
  std::erase_if(
      typed, [&](const TypedOption& each) { return std::find(flags.begin(), flags.end(), each.flag) != flags.end(); });
  return typed;
}

std::vector<TypedOption> with(std::vector<TypedOption> typed, std::string_view flag, std::string text) {
  typed = without(std::move(typed), {flag});
  typed.push_back({std::string(flag), std::move(text)});
  return typed;
}

std::string text_of(const std::vector<TypedOption>& typed, std::string_view flag) {
  for (const TypedOption& each : typed) {
    if (each.flag == flag) return each.text;
  }
  return "";
}

}  // namespace memcalc::cli
