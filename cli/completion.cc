// memcalc completion: what a shell needs to complete a command line of memcalc; and the manual page.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "command.h"
#include "documented.h"
#include "output.h"

namespace memcalc::cli {
namespace {

constexpr const char* kCompletionExamples =
    "Examples:\n"
    "  memcalc completion bash > ~/.local/share/bash-completion/completions/memcalc\n"
    "  memcalc completion zsh > ~/.zfunc/_memcalc\n"
    "  memcalc completion fish > ~/.config/fish/completions/memcalc.fish\n"
    "  memcalc completion man | man -l -\n"
    "  memcalc completion schema > run.schema.json\n"
    "\n"
    "cmake --install puts them where the shells and man look.\n";

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string names_of(const std::vector<DocumentedCommand>& commands) {
  std::vector<std::string> names;
  for (const DocumentedCommand& command : commands) names.push_back(command.name);
  return joined(names);
}

/// Words in single quotes, as all three shells read them.
std::string single_quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

/// What `memcalc completion` writes.
std::vector<std::string> page_names();

constexpr const char* kBashHead = R"(# bash completion of memcalc: written by `memcalc completion bash`
_memcalc_names() { memcalc "$1" --format csv 2>/dev/null | tail -n +2 | cut -d, -f1; }

# Of a list "a,b" the last word is completed.
_memcalc_words() {
  local before=
  case $cur in *,*) before=${cur%,*}, ;; esac
  COMPREPLY=($(compgen -P "$before" -W "$1" -- "${cur##*,}"))
}

_memcalc() {
  local cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command=estimate
  COMPREPLY=()
)";

std::string bash_completion(const std::vector<DocumentedCommand>& commands) {
  std::string text = kBashHead;
  text += "  case ${COMP_WORDS[1]} in\n    " + [&] {
    std::string names = names_of(commands);
    std::replace(names.begin(), names.end(), ' ', '|');
    return names;
  }() + ") command=${COMP_WORDS[1]} ;;\n  esac\n  case $command:$previous in\n";
  for (const DocumentedCommand& command : commands) {
    for (const DocumentedOption& option : command.options) {
      if (option.value.empty()) continue;
      const std::string place = "    " + command.name + ":" + option.name + ") ";
      const std::vector<std::string> words = choices_of(command.name, option.name);
      if (!words.empty()) {
        text += place + "_memcalc_words " + single_quoted(joined(words)) + "; return ;;\n";
      } else if (takes_model(option) || takes_card(option)) {
        const std::string kind = takes_model(option) ? "models" : "gpus";
        text += place + "_memcalc_words \"$(_memcalc_names " + kind +
                ")\"; COMPREPLY+=($(compgen -f -- \"$cur\")); return ;;\n";
      } else if (takes_file(option)) {
        text += place + "COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n";
      } else if (!option.value.starts_with('[')) {
        text += place + "return ;;\n";
      }
    }
  }
  text += "  esac\n  case $command in\n";
  for (const DocumentedCommand& command : commands) {
    std::vector<std::string> names = {"--help"};
    for (const DocumentedOption& option : command.options) names.push_back(option.name);
    text += "    " + command.name + ") COMPREPLY=($(compgen -W " + single_quoted(joined(names)) + " -- \"$cur\"))";
    if (command.name == "completion")
      text += "; COMPREPLY+=($(compgen -W " + single_quoted(joined(page_names())) + " -- \"$cur\"))";
    else if (!command.argument.empty())
      text += "; COMPREPLY+=($(compgen -f -- \"$cur\"))";
    text += " ;;\n";
  }
  text += "  esac\n  [ \"$COMP_CWORD\" -ne 1 ] || COMPREPLY+=($(compgen -W " + single_quoted(names_of(commands)) +
          " -- \"$cur\"))\n}\ncomplete -o filenames -F _memcalc memcalc\n";
  return text;
}

/// In _arguments' specifications colons and brackets have a meaning.
std::string zsh_escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_action(const DocumentedCommand& command, const DocumentedOption& option) {
  const std::vector<std::string> words = choices_of(command.name, option.name);
  if (!words.empty()) return "_values -s , value " + joined(words);
  if (takes_model(option)) return "{_memcalc_names models; _files}";
  if (takes_card(option)) return "{_memcalc_names gpus; _files}";
  return takes_file(option) ? "_files" : " ";
}

std::string zsh_completion(const std::vector<DocumentedCommand>& commands) {
  std::string text =
      "#compdef memcalc\n# zsh completion of memcalc: written by `memcalc completion zsh`\n"
      "_memcalc_names() { compadd -- ${(f)\"$(memcalc $1 --format csv 2>/dev/null | tail -n +2 | cut -d, -f1)\"} }\n\n"
      "_memcalc() {\n  local -a commands=(\n";
  for (const DocumentedCommand& command : commands) {
    text += "    " + single_quoted(command.name + ":" + zsh_escaped(command.description)) + "\n";
  }
  text +=
      "  )\n  local command=estimate\n"
      "  (( CURRENT == 2 )) && [[ $words[2] != -* ]] && _describe command commands && return\n"
      "  if [[ $words[2] != -* ]]; then\n"
      "    command=$words[2]; shift words; (( CURRENT-- ))\n  fi\n  case $command in\n";
  for (const DocumentedCommand& command : commands) {
    text += "    " + command.name + ") _arguments \\\n      '--help[the options of " + command.name + "]'";
    for (const DocumentedOption& option : command.options) {
      std::string item = option.name + "[" + zsh_escaped(option.description) + "]";
      if (!option.value.empty()) {
        const std::string separator = option.value.starts_with('[') ? "::" : ":";
        item += separator + zsh_escaped(option.value) + ":" + zsh_action(command, option);
      }
      text += " \\\n      " + single_quoted(item);
    }
    if (command.name == "completion")
      text += " \\\n      '1:page:(" + joined(page_names()) + ")'";
    else if (!command.argument.empty())
      text += " \\\n      '*:" + command.argument + ":_files'";
    text += " ;;\n";
  }
  return text + "  esac\n}\n[[ $funcstack[1] != _memcalc ]] || _memcalc \"$@\"\n";
}

std::string fish_completion(const std::vector<DocumentedCommand>& commands) {
  std::string text =
      "# fish completion of memcalc: written by `memcalc completion fish`\n"
      "function __memcalc_names\n  memcalc $argv[1] --format csv 2>/dev/null | tail -n +2 | cut -d, -f1\nend\n"
      "function __memcalc_on\n"
      "  set -l words (commandline -opc)\n"
      "  if test (count $words) -lt 2; or string match -q -- '-*' $words[2]\n"
      "    test $argv[1] = estimate; return\n  end\n"
      "  test $words[2] = $argv[1]\nend\n"
      "function __memcalc_first\n  test (count (commandline -opc)) -eq 1\nend\n"
      "complete -c memcalc -f\n";
  for (const DocumentedCommand& command : commands) {
    text += "complete -c memcalc -n __memcalc_first -a " + command.name + " -d " + single_quoted(command.description) +
            "\n";
  }
  for (const DocumentedCommand& command : commands) {
    const std::string on = "complete -c memcalc -n '__memcalc_on " + command.name + "' ";
    for (const DocumentedOption& option : command.options) {
      text += on + "-l " + option.name.substr(2) + " -d " + single_quoted(option.description);
      const std::vector<std::string> words = choices_of(command.name, option.name);
      if (!words.empty()) {
        text += " -x -a " + single_quoted(joined(words));
      } else if (takes_model(option) || takes_card(option)) {
        text += std::string(" -r -F -a '(__memcalc_names ") + (takes_model(option) ? "models" : "gpus") + ")'";
      } else if (takes_file(option)) {
        text += " -r -F";
      } else if (!option.value.empty() && !option.value.starts_with('[')) {
        text += " -x";
      }
      text += "\n";
    }
    if (command.name == "completion")
      text += on + "-a " + single_quoted(joined(page_names())) + "\n";
    else if (!command.argument.empty())
      text += on + "-F\n";
  }
  return text;
}

struct Page {
  std::string_view name;
  std::string (*write)(const std::vector<DocumentedCommand>& commands);
};
constexpr std::array<Page, 7> kPages = {{
    {"bash", bash_completion},
    {"zsh", zsh_completion},
    {"fish", fish_completion},
    {"man", manual_page},
    {"options", option_tables},
    {"schema", [](const std::vector<DocumentedCommand>& /*commands*/) { return render_run_schema(); }},
    {"rules", [](const std::vector<DocumentedCommand>& /*commands*/) { return render_rules(); }},
}};

std::vector<std::string> page_names() {
  std::vector<std::string> names;
  for (const Page& page : kPages) names.emplace_back(page.name);
  return names;
}

}  // namespace

Command add_completion(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("completion", "completions for a shell, the manual page, schemas");
  struct Arguments {
    std::string kind, output;
  };
  auto arguments = std::make_shared<Arguments>();
  app->add_option("kind", arguments->kind, "bash, zsh, fish; man, options, schema, rules: pages")->type_name("PAGE");
  app->add_option("--output", arguments->output, "write the answer to a file [standard output]")->type_name("FILE");
  app->footer(kCompletionExamples);
  return {app, [&root = line.parser, arguments] {
            Output output(arguments->output);
            std::array<std::string_view, kPages.size()> names;
            std::transform(kPages.begin(), kPages.end(), names.begin(), [](const Page& page) { return page.name; });
            const auto page = parse_choice<std::size_t>("completion", arguments->kind, names);
            output.write(kPages[page].write(documented(root)));
            return kAnswered;
          }};
}

}  // namespace memcalc::cli
