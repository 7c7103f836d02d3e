// The command line of memcalc: splits it, runs the command, and is the only place that prints an error.
// Covered by tests/cli.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "arguments.h"
#include "command.h"
#include "heap.h"
#include "memcalc/planning.h"
#include "output.h"
#include "run_arguments.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

constexpr const char* kUsage =
    "usage: memcalc [estimate] --model MODEL [OPTIONS]\n"
    "       memcalc [estimate] --config FILE [OPTIONS]\n"
    "       memcalc [estimate] [OPTIONS] -- python train.py ARGUMENTS\n"
    "       memcalc max-batch | max-seq | ladder --model MODEL [OPTIONS]\n"
    "       memcalc sweep | compare --model MODEL [OPTIONS]\n"
    "       memcalc max-model --family FAMILY [OPTIONS]\n"
    "       memcalc plan --model MODEL --gpus N --global-batch N [OPTIONS]\n"
    "       memcalc trace --model MODEL [OPTIONS]\n"
    "       memcalc weights PATH [OPTIONS]\n"
    "       memcalc upgrade --from VERSIONS --to VERSIONS --model MODEL [OPTIONS]\n"
    "       memcalc utilization [OPTIONS]\n"
    "       memcalc check ROWS [OPTIONS]\n"
    "       memcalc calibrate FILES [OPTIONS]\n"
    "       memcalc models | gpus | profiles | programs [OPTIONS]\n"
    "       memcalc completion SHELL\n";

// CLI11 separates groups with two blank lines.
std::string help_of(const CLI::App& app) {
  std::string help = app.help("memcalc");
  for (std::size_t at = 0; (at = help.find("\n\n\n", at)) != std::string::npos;) help.erase(at, 1);
  while (help.ends_with("\n\n")) help.pop_back();
  return help;
}

// The options of the default command are what a newcomer looks for.
std::string general_help(const std::vector<Command>& commands) {
  std::string text = "memcalc: will this training run fit, and what fills the memory?\n\n";
  text += kUsage;
  text += "\nCommands (memcalc COMMAND --help):\n";
  for (const Command& command : commands) {
    std::string name = "  " + command.app->get_name();
    name.resize(std::max<std::size_t>(name.size() + 1, 14), ' ');
    text += name + command.app->get_description() + "\n";
  }
  text += "\nOptions of memcalc estimate:\n";
  const std::string help = help_of(*commands.front().app);
  const std::size_t first_group = help.find("\nModel and data");
  return text + (first_group == std::string::npos ? help : help.substr(first_group));
}

std::vector<std::string> long_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The specs that --specs or the environment name; nothing where they are wrong, which is not what is asked about here.
std::string specs_or_nothing(const CLI::App& app) {
  const CLI::Option* specs = app.get_option_no_throw("--specs");
  try {
    return find_specs(specs == nullptr || specs->count() == 0 ? "" : specs->results().front());
  } catch (const UsageError&) {
    return "";
  }
}

// What is not modelled, and what to do instead, where the file of such things knows the name; else nothing.
std::optional<std::string> not_modelled_here(const CLI::App& app, AskedAs as, const std::string& name) {
  const std::string specs = specs_or_nothing(app);
  return not_modelled(std::span(&specs, 1), as, name);
}

// What other programs call by this name, where this command has it: "; memcalc calls it --bs". Else the options that
// are spelled nearly so.
std::string hint_of(const CLI::App& app, const std::string& name) {
  const std::vector<std::string> known = long_options(app);
  if (const auto elsewhere = option_name_elsewhere(specs_or_nothing(app), name)) {
    const std::string& ours = elsewhere->ours;
    if (ours.empty()) return "; it changes neither memory nor the time of a step: leave it out";
    const std::string option = ours.substr(0, ours.find_first_of(" ,"));
    if (std::find(known.begin(), known.end(), option) != known.end()) return "; memcalc calls it " + ours;
  }
  // Without the dashes, which all of them share.
  std::vector<std::string> words;
  for (const std::string& each : known) words.push_back(each.substr(2));
  std::vector<std::string> near;
  for (const std::string& each : nearest_names(std::string_view(name).substr(name.find_first_not_of('-')), words)) {
    near.push_back("--" + each);
  }
  return did_you_mean(near);
}

// CLI11 leaves what it does not know; the first of it is named.
void refuse_leftovers(const CLI::App& app) {
  const std::vector<std::string> leftovers = app.remaining();
  if (leftovers.empty()) return;
  const std::string& argument = leftovers.front();
  if (argument.empty() || argument.front() != '-') {
    throw UsageError("unexpected argument '" + one_line(argument) + "'; every value follows its option");
  }
  const std::string name = argument.substr(0, argument.find('='));
  const bool named = name.find_first_not_of('-') != std::string::npos;
  if (const auto instead = not_modelled_here(app, AskedAs::kOption, name))
    throw UsageError(one_line(name) + ": " + *instead);
  throw UsageError("unknown option '" + one_line(name) + "'" + (named ? hint_of(app, name) : "") + " (memcalc " +
                   app.get_name() + " --help lists all)");
}

// A value that an option does not take may be something that is not modelled (--loop ppo) or has another name here
// (--task dpo is --loop trl-dpo).
void refuse_value_of_elsewhere(const CLI::App& app, const Error& error) {
  if (error.code() != ErrorCode::kUsage || !error.part().starts_with("--")) return;
  const CLI::Option* option = app.get_option_no_throw(std::string(error.part()));
  if (option == nullptr) return;
  const Field* field = find_field(error.part());
  for (const std::string& value : option->results()) {
    if (field != nullptr && std::find(field->names.begin(), field->names.end(), value) != field->names.end()) continue;
    if (value.ends_with(".json") && option->get_name() == "--deepspeed") {  // as transformers' examples have it
      throw UsageError("--deepspeed " + one_line(value) + ": DeepSpeed's configuration is read by --config FILE");
    }
    if (const auto elsewhere = option_name_elsewhere(specs_or_nothing(app), value)) {
      const std::string& ours = elsewhere->ours;  // "--loop trl-dpo"; not "--bs", which says nothing of the value
      const std::size_t end = ours.find_first_of(" ,");
      // "half" is a type where a type is asked for, and nothing else.
      const bool is_type = ours.starts_with("--precision") && error.part() != "--precision";
      if (end != std::string::npos && ours[end] == ' ' && !is_type) {
        throw UsageError(option->get_name() + " " + one_line(value) + ": memcalc calls it " + ours);
      }
    }
    if (const auto instead = not_modelled_here(app, AskedAs::kValue, value)) {
      throw UsageError(option->get_name() + " " + one_line(value) + ": " + *instead);
    }
  }
}

// In "--bs --seq 5" CLI11 takes "--seq" as the value of --bs.
void refuse_options_as_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& value : option->results()) {
      if (!value.starts_with("--")) continue;
      std::string what = "a value";
      if (const Field* field = find_field(option->get_name()); field != nullptr && field->type == FieldType::kName) {
        what = "one of";
        for (const std::string_view name : field->names) {
          what += (name == field->names.front() ? " " : ", ") + std::string(name);
        }
      }
      throw UsageError(option->get_name() + ": expected " + what + ", found the option '" + one_line(value) + "'");
    }
  }
}

// "--bs=" would make CLI11 take the next argument as the value, and an empty one reads as "not given".
void refuse_empty_values(const std::vector<std::string>& arguments) {
  std::string before;
  for (const std::string& argument : arguments) {
    const bool cut_off = argument.size() > 3 && argument.starts_with("--") && argument.find('=') == argument.size() - 1;
    if (cut_off) before = argument.substr(0, argument.size() - 1);
    if (cut_off || argument.empty()) {
      throw UsageError((before.empty() ? "the command line" : one_line(before)) + ": expected a value, found nothing");
    }
    before = argument;
  }
}

struct Entry {
  const char* name;
  Command (*add)(CommandLine& line);
};

// In the order of --help.
constexpr Entry kCommands[] = {
    {"estimate", add_estimate},       {"max-batch", add_max_batch}, {"max-seq", add_max_seq},
    {"max-model", add_max_model},     {"sweep", add_sweep},         {"compare", add_compare},
    {"ladder", add_ladder},           {"plan", add_plan},           {"trace", add_trace},
    {"weights", add_weights},         {"models", add_models},       {"gpus", add_gpus},
    {"programs", add_programs},       {"calibrate", add_calibrate}, {"check", add_check},
    {"utilization", add_utilization}, {"upgrade", add_upgrade},     {"profiles", add_profiles},
    {"completion", add_completion}};

bool asks_about_all(const std::string& first) { return first == "--help" || first == "-h" || first == "completion"; }

// `memcalc --model …` is `memcalc estimate --model …`; `memcalc help plan` is `memcalc plan --help`, as other programs
// have it.
std::vector<std::string> with_default_command(std::vector<std::string> arguments) {
  if (arguments.front() == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  }
  const std::string& first = arguments.front();
  if (asks_about_all(first) || first == "--version") return arguments;
  if (first.starts_with('-')) {
    arguments.insert(arguments.begin(), "estimate");
    return arguments;
  }
  std::vector<std::string> names;
  for (const Entry& entry : kCommands) names.emplace_back(entry.name);
  if (std::find(names.begin(), names.end(), first) == names.end()) {
    const std::string near = did_you_mean(first, names);
    throw UsageError("unknown command '" + one_line(first) + "'; the commands are " + join(names) +
                     (near.empty() ? "; a model is given as --model NAME" : near));
  }
  return arguments;
}

// All commands' options, or those of one: CLI11 compares each with those before it.
std::vector<Command> add_needed(CommandLine& line, const std::string& first) {
  std::vector<Command> commands;
  for (const Entry& entry : kCommands) {
    if (!asks_about_all(first) && first != entry.name) continue;
    commands.push_back(entry.add(line));
    commands.back().app->allow_extras();
  }
  return commands;
}

// CLI11's own words ("1 required N missing") are for programmers.
std::string message_of(const CLI::ParseError& error) {
  const std::string text = error.what();
  const std::string option = text.substr(0, text.find(':'));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && option.starts_with('-')) {
    return option +
           (text.find("At Most") == std::string::npos ? ": expected a value, found nothing" : ": given more than once");
  }
  if (text.find("flag override") != std::string::npos) {
    return "--" + text.substr(0, text.find(' ')) + ": takes no value";
  }
  return text.substr(0, text.find('\n'));
}

/// Options that were not typed are not known to the parser; its help and its hints name them.
struct NeedsAllOptions {};

/// `declare`: the options of a run that were typed alone, or all. Throws NeedsAllOptions where the first is too few.
enum class Declare : std::uint8_t { kTyped, kAll };

ExitStatus run(const std::vector<std::string>& typed, Declare declare) {
  CLI::App root("memcalc");
  root.name("memcalc");
  root.set_version_flag("--version", "memcalc " MEMCALC_VERSION);
  if (typed.empty()) throw UsageError("nothing to estimate: give at least --model (memcalc --help)");
  refuse_empty_values({typed.begin(), std::find(typed.begin(), typed.end(), "--")});

  // What stands behind "--" is another tool's command line.
  const auto marker = std::find(typed.begin(), typed.end(), "--");
  std::vector<std::string> own(typed.begin(), marker);
  const std::vector<std::string> other(marker == typed.end() ? marker : marker + 1, typed.end());
  if (marker != typed.end() && other.empty()) throw UsageError("--: expected a training's command line behind it");
  if (own.empty()) own = {"estimate"};

  std::vector<std::string> arguments = with_default_command(std::move(own));
  CommandLine line{root, {}};
  if (declare == Declare::kTyped && !asks_about_all(arguments.front())) line.typed = arguments;
  const std::vector<Command> commands = add_needed(line, arguments.front());
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 wants them
  try {
    root.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    if (line.typed) throw NeedsAllOptions();
    const auto parsed = root.get_subcommands();
    Output("-").write(parsed.empty() ? general_help(commands) : help_of(*parsed.front()));
    return kAnswered;
  } catch (const CLI::CallForVersion& version) {
    Output("-").write(std::string(version.what()) + "\n");
    return kAnswered;
  } catch (const CLI::ParseError& error) {
    throw UsageError(message_of(error));
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    refuse_options_as_values(*command.app);
    if (line.typed && !command.app->remaining().empty()) throw NeedsAllOptions();
    refuse_leftovers(*command.app);
    if (!other.empty()) {
      if (command.arguments == nullptr)
        throw UsageError("memcalc " + command.app->get_name() + ": takes no command line behind '--'");
      command.arguments->command = other;
    }
    try {
      return command.run();
    } catch (const Error& error) {
      refuse_value_of_elsewhere(*command.app, error);
      throw;
    }
  }
  throw UsageError("no command was given (memcalc --help)");
}

ExitStatus run(const std::vector<std::string>& typed) {
  try {
    return run(typed, Declare::kTyped);
  } catch (const NeedsAllOptions&) {
    return run(typed, Declare::kAll);
  }
}

ExitStatus failed(ExitStatus status, const std::string& message) {
  std::fprintf(stderr, "memcalc: error: %s\n", message.c_str());
  return status;
}

}  // namespace

bool CommandLine::declares(std::string_view option) const {
  if (!typed) return true;
  return std::any_of(typed->begin(), typed->end(), [&](const std::string& word) {
    return word.starts_with(option) && (word.size() == option.size() || word[option.size()] == '=');
  });
}

}  // namespace memcalc::cli

int main(int argc, char** argv) {
  using memcalc::cli::failed;
  memcalc::cli::use_huge_pages();
  try {
    return memcalc::cli::run({argv + std::min(argc, 1), argv + argc});
  } catch (const memcalc::cli::UsageError& error) {
    return failed(memcalc::cli::kWrongInput, error.what());
  } catch (const memcalc::Error& error) {
    const bool ours = error.code() == memcalc::ErrorCode::kInternal;
    return failed(ours ? memcalc::cli::kInternalError : memcalc::cli::kWrongInput, error.what());
  } catch (const std::exception& error) {
    return failed(memcalc::cli::kInternalError, std::string("unexpected: ") + error.what());
  }
}
