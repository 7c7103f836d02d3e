// The options that describe a run, shared by every command that takes one: the rows of the library's table.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "memcalc/memcalc.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace memcalc::cli {

struct CommandLine;

/// An option and its value as they were typed: {"--bs", "4"}, {"--padding", ""}.
struct TypedOption {
  std::string flag;
  std::string text;
};

/// The options as declared on a command, which outlives it.
struct RunArguments {
  std::vector<const CLI::Option*> options;
  std::string specs;                  // --specs
  std::string config;                 // --config
  std::string config_format;          // --config-format
  std::string config_without;         // --config-without
  std::vector<std::string> command;   // what stands behind "--"
  std::vector<std::string> searched;  // options that the command looks for: not taken from a file

  /// Those that were typed, in the order of the table, and those of another tool's file or command line that they do
  /// not take the place of. Throws as read_config() does.
  [[nodiscard]] std::vector<TypedOption> typed() const;
  /// That file, beside what was typed; nothing where there is none. It is read when it is first asked for.
  [[nodiscard]] const std::optional<ConfigFile>& config_file() const;

 private:
  [[nodiscard]] std::vector<TypedOption> own() const;
  [[nodiscard]] std::optional<ConfigFile> read_config_file() const;

  mutable std::optional<std::optional<ConfigFile>> config_file_;  // once it was read
};

/// Declares the options on a command; `arguments` must outlive it. `data`: with those of the whole training and its
/// data.
void add_run_options(const CommandLine& line, CLI::App& command, RunArguments& arguments, bool data = false);

/// Whether any of them was typed.
[[nodiscard]] bool is_typed(const std::vector<TypedOption>& typed, std::string_view flag);

/// What they ask. Throws Error(kUsage) for a value that is not accepted.
[[nodiscard]] RunRequest request_of(const std::vector<TypedOption>& typed);

/// The whole question.
[[nodiscard]] Question question_of(const RunArguments& arguments);
[[nodiscard]] Question question_of(const std::vector<TypedOption>& typed, const std::string& specs);
/// Of other options than were typed, with what is assumed because of the file.
[[nodiscard]] Question question_beside(const RunArguments& arguments, const std::vector<TypedOption>& typed);

/// Without some options; with one set anew.
[[nodiscard]] std::vector<TypedOption> without(std::vector<TypedOption> typed,
                                               std::initializer_list<std::string_view> flags);
[[nodiscard]] std::vector<TypedOption> with(std::vector<TypedOption> typed, std::string_view flag, std::string text);

/// What was typed for an option; empty where it was not, or has no value.
[[nodiscard]] std::string text_of(const std::vector<TypedOption>& typed, std::string_view flag);

}  // namespace memcalc::cli
