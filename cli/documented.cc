#include "documented.h"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <map>
#include <span>
#include <string_view>

#include "memcalc/planning.h"

namespace memcalc::cli {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::string_view kFormats[] = {"text", "json", "csv", "md"};
constexpr std::string_view kTraceFormats[] = {"tsv", "json", "replay"};
constexpr std::string_view kSteps[] = {"last", "all"};
constexpr std::string_view kColors[] = {"auto", "always", "never"};
constexpr std::string_view kEmits[] = {"torchrun", "deepspeed", "megatron", "trainer"};

DocumentedOption documented(const CLI::Option& option) {
  DocumentedOption result;
  result.name = "--" + option.get_lnames().front();
  result.description = option.get_description();
  std::replace(result.description.begin(), result.description.end(), '\n', ' ');  // of --help, for its width
  result.group = option.get_group();
  if (option.get_items_expected_max() > 0) result.value = option.get_type_name();
  return result;
}

}  // namespace

std::vector<DocumentedCommand> documented(const CLI::App& root) {
  std::vector<DocumentedCommand> commands;
  for (const CLI::App* app : root.get_subcommands([](const CLI::App*) { return true; })) {
    DocumentedCommand command;
    command.name = app->get_name();
    command.description = app->get_description();
    command.footer = app->get_footer();
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional()) {
        command.argument = option->get_type_name();
      } else if (!option->get_lnames().empty() && option->get_lnames().front() != "help") {
        command.options.push_back(documented(*option));
      }
    }
    commands.push_back(std::move(command));
  }
  return commands;
}

std::vector<std::string> groups_of(const std::vector<DocumentedOption>& options) {
  std::vector<std::string> groups;
  for (const DocumentedOption& option : options) {
    if (std::find(groups.begin(), groups.end(), option.group) == groups.end()) groups.push_back(option.group);
  }
  return groups;
}

std::vector<std::string> choices_of(const std::string& command, const std::string& option) {
  static const std::map<std::string, Names> kOfCommands = {
      {"--format", kFormats}, {"--events", kSteps}, {"--color", kColors}, {"--emit", kEmits}};
  Names names;
  if (option == "--config-format") {
    names = config_formats();
  } else if (option == "--format" && command == "trace") {
    names = kTraceFormats;
  } else if (const auto found = kOfCommands.find(option); found != kOfCommands.end()) {
    names = found->second;
  } else if (const Field* field = find_field(option); field != nullptr && field->flag == option) {
    names = field->names;
  }
  return {names.begin(), names.end()};
}

bool takes_file(const DocumentedOption& option) {
  return option.value == "FILE" || option.value == "DIR" || takes_model(option);
}
bool takes_model(const DocumentedOption& option) { return option.name == "--model"; }
bool takes_card(const DocumentedOption& option) { return option.name == "--gpu"; }

}  // namespace memcalc::cli
