// The manual page, memcalc(1).
#include <algorithm>
#include <set>

#include "documented.h"

namespace memcalc::cli {
namespace {

/// Text as roff reads it: no line begins a request, a hyphen of an option can be copied.
std::string roff(const std::string& text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool starts_line = i == 0 || text[i - 1] == '\n';
    if (starts_line && (text[i] == '.' || text[i] == '\'')) result += "\\&";
    if (text[i] == '\\') {
      result += "\\e";
    } else if (text[i] == '-') {
      result += "\\-";
    } else {
      result += text[i];
    }
  }
  return result;
}

std::string paragraph(const DocumentedOption& option) {
  std::string text = ".TP\n\\fB" + roff(option.name) + "\\fR";
  if (!option.value.empty()) text += " \\fI" + roff(option.value) + "\\fR";
  return text + "\n" + roff(option.description) + "\n";
}

std::set<std::string> names_of(const DocumentedCommand& command) {
  std::set<std::string> names;
  for (const DocumentedOption& option : command.options) names.insert(option.name);
  return names;
}

std::string grouped(const std::vector<DocumentedOption>& options) {
  std::string text;
  for (const std::string& group : groups_of(options)) {
    text += ".SS " + roff(group) + "\n";
    for (const DocumentedOption& option : options) {
      if (option.group == group) text += paragraph(option);
    }
  }
  return text;
}

std::string command_section(const DocumentedCommand& command, const DocumentedCommand& estimate) {
  std::string text = ".SS memcalc " + roff(command.name);
  if (!command.argument.empty()) text += " " + roff(command.argument);
  text += "\n" + roff(command.description) + ".\n";
  const std::set<std::string> known = names_of(estimate);
  const bool runs = names_of(command).contains("--bs");
  for (const DocumentedOption& option : command.options) {
    if (!runs || !known.contains(option.name)) text += paragraph(option);
  }
  if (runs) text += ".PP\nIt takes the options of a run, as under OPTIONS.\n";
  return text;
}

std::string examples_of(const std::vector<DocumentedCommand>& commands) {
  std::string text;
  for (const DocumentedCommand& command : commands) {
    for (std::size_t at = 0; (at = command.footer.find("\n  memcalc", at)) != std::string::npos; ++at) {
      const std::size_t end = command.footer.find('\n', at + 1);
      text += roff(command.footer.substr(at + 3, end - at - 3)) + "\n";
    }
  }
  return text;
}

}  // namespace

std::string manual_page(const std::vector<DocumentedCommand>& commands) {
  const DocumentedCommand& estimate = commands.front();
  std::string text =
      ".\\\" Written by `memcalc completion man`.\n.TH MEMCALC 1 \"\" \"memcalc " MEMCALC_VERSION
      "\" \"User Commands\"\n"
      ".SH NAME\nmemcalc \\- will this training run fit, and what fills the memory\n"
      ".SH SYNOPSIS\n.B memcalc\n[\\fIestimate\\fR] \\fB\\-\\-model\\fR \\fIMODEL\\fR [\\fIOPTIONS\\fR]\n"
      ".br\n.B memcalc\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n"
      ".SH DESCRIPTION\nRuns a training step symbolically, replays its allocations on PyTorch's caching "
      "allocator, and says what the run needs of a GPU's memory, what fills it and how long a step takes. "
      "Standard output carries the answer, standard error the diagnostics.\n"
      ".SH COMMANDS\n";
  for (std::size_t i = 1; i < commands.size(); ++i) text += command_section(commands[i], estimate);
  text += ".SH OPTIONS\nOf memcalc estimate, the default command. The value in brackets is the default.\n";
  text += grouped(estimate.options);
  text +=
      ".SH EXIT STATUS\n"
      ".TP\n0\nanswered; \\(lqdoes not fit\\(rq is an answer\n"
      ".TP\n1\nanswered \\(lqno\\(rq: does not fit, with \\-\\-require\\-fit; nothing fits, of the planner's commands\n"
      ".TP\n2\nwrong input or usage; one line on standard error says where and what is accepted\n"
      ".TP\n3\na bug of memcalc\n"
      ".TP\n130\nstopped by Ctrl-C; the planner's commands print the best so far\n"
      ".SH ENVIRONMENT\n"
      ".TP\nMEMCALC_SPEC_PATH\ndirectory of models/ and gpus/, where \\-\\-specs is not given\n"
      ".TP\nNO_COLOR\nno colours, where \\-\\-color is auto\n"
      ".SH EXAMPLES\n.EX\n" +
      examples_of(commands) + ".EE\n";
  return text;
}

}  // namespace memcalc::cli
