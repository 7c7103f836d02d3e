// memcalc programs: the recorded models, and what of them the operator table does not have.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "arguments.h"
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

/// "DetrForObjectDetection of transformers" of "recorded from transformers.models.detr.modeling_detr.Detr…,
/// torch 2.11": what fits in so many columns. Another source: its beginning.
std::string recorded_from(std::string_view source, std::size_t columns) {
  constexpr std::string_view kWords = "recorded from ";
  if (!source.starts_with(kWords)) return std::string(source.substr(0, columns));
  source = source.substr(kWords.size(), source.find_first_of(",;", kWords.size()) - kWords.size());
  const std::size_t last = source.rfind('.');
  if (last == std::string_view::npos) return std::string(source.substr(0, columns));
  const std::string name(source.substr(last + 1));
  const std::string whole = name + " of " + std::string(source.substr(0, source.find('.')));
  return whole.size() <= columns ? whole : name.substr(0, columns);
}

/// A line each, within the columns of a terminal; a file's own name may be longer.
std::string render_sources(const std::vector<std::string>& names, const std::vector<std::string>& sources) {
  constexpr std::size_t kColumns = 80, kLongestName = 40, kGap = 2;
  std::size_t width = 0;
  for (const std::string& name : names) width = std::max(width, std::min(name.size(), kLongestName));
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t used = std::max(width, names[i].size()) + kGap;
    std::string line = names[i];
    line.resize(used, ' ');
    line += recorded_from(sources[i], used < kColumns ? kColumns - used : 0);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

ExitStatus run_programs(const ProgramsArguments& arguments) {
  Output output(arguments.output);
  std::string text;
  if (arguments.operators) {
    if (arguments.opaque) throw UsageError("--operators and --opaque contradict each other: give one");
    if (!arguments.models.empty()) throw UsageError("--operators and --models contradict each other: give one");
    if (!arguments.specs.empty()) (void)find_specs(arguments.specs);
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
  output.write(render_sources(names, sources));
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
