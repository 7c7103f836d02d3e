#include "run_arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstddef>
#include <utility>

#include "arguments.h"
#include "combinations.h"
#include "command.h"
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

void add_run_options(const CommandLine& line, CLI::App& command, RunArguments& arguments, bool data) {
  command.get_formatter()->column_width(kHelpColumn);
  const auto declare = [&](FieldGroup group, std::string_view flag, std::string_view value, std::string_view help,
                           bool may_lack_value) {
    if (!line.declares(flag)) return;
    CLI::Option* option = add(command, group, flag, value, help);
    if (may_lack_value) option->expected(0, 1);
    arguments.options.push_back(option);
  };
  for (const Field& field : run_fields()) {
    if (field.group == FieldGroup::kMegatron || field.group == FieldGroup::kDeepSpeed) continue;
    if (field.group == FieldGroup::kTime && !data) continue;
    declare(field.group, field.flag, field.value, field.help, may_lack_value(field));
    if (!field.negative.empty()) declare(field.group, field.negative, "", field.negative_help, false);
    if (field.key == "micro_batches") {
      for (const auto& [list, help] : {std::pair{"--megatron", "Megatron's own arguments: name or name=value, …"},
                                       std::pair{"--deepspeed", "its zero_optimization: name=value, …"}}) {
        declare(FieldGroup::kParallel, list, "LIST", help, false);
      }
    }
  }
  command.add_option("--specs", arguments.specs, "directory of models/, gpus/ [$MEMCALC_SPEC_PATH]")
      ->type_name("DIR")
      ->group(std::string(title_of(FieldGroup::kCard)));
  const char* group = "Other tools' files";
  command.add_option("--config", arguments.config, "axolotl, LLaMA-Factory, TRL, accelerate, DeepSpeed, …")
      ->type_name("FILE")
      ->group(group);
  command
      .add_option("--config-format", arguments.config_format, "whose file it is (docs/config-files.md) [by its keys]")
      ->type_name("F")
      ->group(group);
  command.add_option("--config-without", arguments.config_without, "keys of it, by commas, to leave out")
      ->type_name("KEYS")
      ->group(group);
}

std::vector<TypedOption> RunArguments::typed() const {
  std::vector<TypedOption> all = own();
  if (const std::optional<ConfigFile>& file = config_file()) {
    for (const ConfigOption& each : file->options) {
      const bool is_searched = std::find(searched.begin(), searched.end(), each.flag) != searched.end();
      if (!is_searched) all.push_back({each.flag, each.text});
    }
  }
  return all;
}

const std::optional<ConfigFile>& RunArguments::config_file() const {
  if (!config_file_) config_file_ = read_config_file();
  return *config_file_;
}

std::optional<ConfigFile> RunArguments::read_config_file() const {
  if (config.empty() && command.empty()) {
    if (!config_format.empty()) throw UsageError("--config-format: there is no file (--config FILE)");
    if (!config_without.empty()) throw UsageError("--config-without: there is no file (--config FILE)");
    return std::nullopt;
  }
  if (!config.empty() && !command.empty()) throw UsageError("--config beside a command line behind '--': one of them");
  if (!command.empty() && !config_format.empty()) throw UsageError("--config-format: a command line says whose it is");
  std::vector<std::string> left_out;
  if (!config_without.empty()) left_out = values_of("--config-without", config_without);
  std::vector<ConfigOption> said;
  for (const auto& [flag, text] : own()) said.push_back({flag, text, ""});
  ConfigFile file = config_beside(
      config.empty() ? read_command_line(command, left_out) : read_config({config, config_format, left_out}), said);
  const SpecRegistry registry(find_specs(specs));
  require_masking(file, said, registry);
  return with_limited_length(without_absent(std::move(file), said, registry), said, registry);
}

namespace {

/// Adds what is assumed because of the file.
void add_assumptions(const RunArguments& arguments, ResolvedRun& run) {
  if (const std::optional<ConfigFile>& file = arguments.config_file()) {
    const std::vector<std::string> all = assumptions_of(*file);
    run.assumptions.insert(run.assumptions.begin(), all.begin(), all.end());
  }
}

/// A report says all options of its run, defaults among them, which may not go with those that were typed.
std::string way_out(const ConfigFile& file, const std::string& key, const Error& error) {
  if (file.format != "memcalc") return "";
  const bool has_others = std::string_view(error.what()).find("; accepted: ") != std::string_view::npos;
  return (has_others ? ", or --config-without " : "; accepted: --config-without ") + key;
}

}  // namespace

std::vector<TypedOption> RunArguments::own() const {
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

Question question_of(const RunArguments& arguments) { return question_beside(arguments, arguments.typed()); }

Question question_beside(const RunArguments& arguments, const std::vector<TypedOption>& typed) {
  try {
    Question question = question_of(typed, arguments.specs);
    add_assumptions(arguments, question.run);
    return question;
  } catch (const Error& error) {
    const std::optional<ConfigFile>& file = arguments.config_file();
    if (!file) throw;
    // A file names models by their ids on the hub, of which the registry knows some.
    if (std::string_view(error.what()).starts_with("unknown model")) {
      throw Error(error.code(),
                  file->file + ": " + error.what() + "; accepted: --model with a config.json or a name of these");
    }
    for (const ConfigOption& each : file->options) {
      if (each.flag != error.part() || each.key.empty()) continue;
      throw Error(error.code(), file->file + ": /" + each.key + ": " + error.what() + way_out(*file, each.key, error),
                  error.part(), error.rule());
    }
    throw;
  }
}

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
