// memcalc programs: the recorded models, and what of them the operator table does not have.
#include <CLI/CLI.hpp>
#include <map>
#include <memory>

#include "command.h"
#include "memcalc/memcalc.h"
#include "output.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

struct ProgramsArguments {
  std::vector<std::string> models;
  bool opaque = false;
  bool operators = false;
  std::string specs;
  std::string output;
};

/// By operator the programs that call it, the most frequent first.
std::string render_opaque(const SpecRegistry& registry, const std::vector<std::string>& names) {
  std::map<std::string, std::vector<std::string>> callers;
  for (const std::string& name : names) {
    for (const std::string& function : opaque_operators(registry.model(name))) callers[function].push_back(name);
  }
  std::vector<std::pair<std::string, std::vector<std::string>>> sorted(callers.begin(), callers.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string text;
  for (const auto& [function, programs] : sorted) {
    text += function + " " + std::to_string(programs.size()) + ":";
    for (const std::string& program : programs) text += " " + program;
    text += "\n";
  }
  return text.empty() ? "no operator of " + std::to_string(names.size()) + " programs is opaque\n" : text;
}

ExitStatus run_programs(const ProgramsArguments& arguments) {
  Output output(arguments.output);
  std::string text;
  if (arguments.operators) {
    for (const std::string& name : known_operators()) text += name + "\n";
    output.write(text);
    return kAnswered;
  }
  const SpecRegistry registry(find_specs(arguments.specs));
  std::vector<std::string> names, sources;
  if (arguments.models.empty()) {
    for (const ModelListing& each : registry.models()) {
      if (!each.is_program) continue;
      names.push_back(each.name);
      sources.push_back(each.source);
    }
  } else {
    names = arguments.models;
    for (const std::string& name : names) sources.push_back(registry.model(name).source);
  }
  if (arguments.opaque) {
    output.write(render_opaque(registry, names));
    return kAnswered;
  }
  for (std::size_t i = 0; i < names.size(); ++i) text += names[i] + "  " + sources[i] + "\n";
  output.write(text);
  return kAnswered;
}

}  // namespace

Command add_programs(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("programs", "the models that were recorded as programs");
  auto arguments = std::make_shared<ProgramsArguments>();
  app->add_option("--models", arguments->models, "names or files of programs [those that --model knows]")
      ->type_name("MODEL")
      ->group("Answer");
  app->add_flag("--opaque", arguments->opaque, "the operators whose inside is not modelled")->group("Answer");
  app->add_flag("--operators", arguments->operators, "the functions of torch that are modelled")->group("Answer");
  app->add_option("--output", arguments->output, "write the answer to a file [standard output]")
      ->type_name("FILE")
      ->group("Answer");
  app->add_option("--specs", arguments->specs, "directory of models/, gpus/ [$MEMCALC_SPEC_PATH]")
      ->type_name("DIR")
      ->group("Answer");
  app->footer("Examples:\n  memcalc programs\n  memcalc programs --opaque --models mine.json.gz\n");
  return {app, [arguments] { return run_programs(*arguments); }};
}

}  // namespace memcalc::cli
