// What a person can type, as plain values read off the declared options: the one source of the shells' completions,
// of the manual page and of the tables of docs/cli.md. Covered by tests/cli/completion_test.py.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace memcalc::cli {

struct DocumentedOption {
  std::string name;         // "--bs"; of a positional argument empty
  std::string value;        // "N", "[NORM]"; of a flag empty
  std::string description;  // "sequences per micro-batch [1]"
  std::string group;        // "Model and data"
};

struct DocumentedCommand {
  std::string name;
  std::string description;
  std::vector<DocumentedOption> options;  // as declared
  std::string argument;                   // "PATH"; empty: none
  std::string footer;                     // examples and exit statuses
};

/// Commands in the order of --help.
[[nodiscard]] std::vector<DocumentedCommand> documented(const CLI::App& root);

/// The groups of options, in the order of their first one.
[[nodiscard]] std::vector<std::string> groups_of(const std::vector<DocumentedOption>& options);

/// The words that an option of a command accepts; empty where it takes a number, a name or a file.
[[nodiscard]] std::vector<std::string> choices_of(const std::string& command, const std::string& option);

/// What a shell completes after these options.
[[nodiscard]] bool takes_file(const DocumentedOption& option);
[[nodiscard]] bool takes_model(const DocumentedOption& option);
[[nodiscard]] bool takes_card(const DocumentedOption& option);

/// roff, in the macros of man(7).
[[nodiscard]] std::string manual_page(const std::vector<DocumentedCommand>& commands);

/// Markdown: "## max-batch", "### Answer", a table of options.
[[nodiscard]] std::string option_tables(const std::vector<DocumentedCommand>& commands);

}  // namespace memcalc::cli
