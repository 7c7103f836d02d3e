// memcalc models, memcalc gpus: what the registry knows.
// Covered by tests/cli/questions_test.py.
#include <CLI/CLI.hpp>
#include <memory>

#include "arguments.h"
#include "command.h"
#include "output.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

struct ListArguments {
  std::string format = "text";
  std::string specs;
  std::string output;
};

struct ModelSearchArguments {
  std::string text, task, fewest, most;
};

std::shared_ptr<ListArguments> add_list(CLI::App& app) {
  app.get_formatter()->column_width(24);
  auto arguments = std::make_shared<ListArguments>();
  app.add_option("--format", arguments->format, "text, json, csv or md [text]")->type_name("F")->group("Answer");
  app.add_option("--output", arguments->output, "write the answer to a file [standard output]")
      ->type_name("FILE")
      ->group("Answer");
  app.add_option("--specs", arguments->specs, "directory of models/, gpus/ [$MEMCALC_SPEC_PATH]")
      ->type_name("DIR")
      ->group("Answer");
  return arguments;
}

/// `list(registry)`: what is rendered.
template <typename List>
ExitStatus write_list(const ListArguments& arguments, const List& list) {
  const Format format = parse_format(arguments.format);
  Output output(arguments.output);
  output.write(render(list(SpecRegistry(find_specs(arguments.specs))), format));
  return kAnswered;
}

ModelSearch search_of(const ModelSearchArguments& arguments) {
  ModelSearch search{.text = arguments.text};
  if (!arguments.task.empty()) search.task = parse_choice<Task>("--task", arguments.task, kTaskNames);
  if (!arguments.fewest.empty()) search.fewest_parameters = parse_count("--min-parameters", arguments.fewest);
  if (!arguments.most.empty()) search.most_parameters = parse_count("--max-parameters", arguments.most);
  return search;
}

}  // namespace

Command add_models(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("models", "the models that --model knows by name");
  const auto arguments = add_list(*app);
  auto search = std::make_shared<ModelSearchArguments>();
  app->add_option("--search", search->text, "words in a name, another name or the family")
      ->type_name("TEXT")
      ->group("Which");
  app->add_option("--task", search->task, "models that can be trained for it")->type_name("T")->group("Which");
  app->add_option("--min-parameters", search->fewest, "of so many parameters or more: 350m, 1.5b")
      ->type_name("N")
      ->group("Which");
  app->add_option("--max-parameters", search->most, "of so many or fewer")->type_name("N")->group("Which");
  app->footer(
      "Examples:\n  memcalc models\n  memcalc models --search qwen --max-parameters 8b\n"
      "  memcalc models --task mlm --format json\n");
  return {app, [arguments, search] {
            return write_list(*arguments, [&](const SpecRegistry& registry) {
              std::vector<ModelListing> models = found(registry.models(), search_of(*search));
              if (models.empty()) throw UsageError("models: none is such ('memcalc models' lists them all)");
              return models;
            });
          }};
}

Command add_gpus(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("gpus", "the cards that --gpu knows by name");
  const auto arguments = add_list(*app);
  app->footer("Examples:\n  memcalc gpus\n  memcalc gpus --format json\n");
  return {app, [arguments] {
            return write_list(*arguments, [](const SpecRegistry& registry) { return registry.devices(); });
          }};
}

}  // namespace memcalc::cli
