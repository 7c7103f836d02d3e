// Every option of every command as Markdown, for docs/cli.md (scripts/doc_outputs).
#include <fmt/core.h>

#include "documented.h"

namespace memcalc::cli {

std::string option_tables(const std::vector<DocumentedCommand>& commands) {
  std::string text;
  for (const DocumentedCommand& command : commands) {
    text += fmt::format("## {}\n", command.name);
    for (const std::string& group : groups_of(command.options)) {
      text += fmt::format("\n### {}\n| option | meaning |\n| --- | --- |\n", group);
      for (const DocumentedOption& option : command.options) {
        if (option.group != group) continue;
        const std::string value = option.value.empty() ? "" : " " + option.value;
        text += fmt::format("| `{}{}` | {} |\n", option.name, value, option.description);
      }
    }
    text += "\n";
  }
  return text;
}

}  // namespace memcalc::cli
