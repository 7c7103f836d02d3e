// memcalc models, memcalc gpus: what the registry knows.
#include <CLI/CLI.hpp>
#include <array>
#include <memory>

#include "arguments.h"
#include "command.h"
#include "output.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

constexpr std::array<std::string_view, 4> kFormatNames = {"text", "json", "csv", "md"};

struct ListArguments {
  std::string format = "text";
  std::string specs;
  std::string output;
};

template <typename Render>
Command add_list(CLI::App& root, const char* name, const char* description, const Render& render_list) {
  CLI::App* app = root.add_subcommand(name, description);
  app->get_formatter()->column_width(24);
  auto arguments = std::make_shared<ListArguments>();
  app->add_option("--format", arguments->format, "text, json, csv or md [text]")->type_name("F")->group("Answer");
  app->add_option("--output", arguments->output, "write the answer to a file [standard output]")
      ->type_name("FILE")
      ->group("Answer");
  app->add_option("--specs", arguments->specs, "directory of models/, gpus/ [$MEMCALC_SPEC_PATH]")
      ->type_name("DIR")
      ->group("Answer");
  app->footer("Examples:\n  memcalc " + std::string(name) + "\n  memcalc " + name + " --format json\n");
  return {app, [arguments, render_list] {
            const Format format = parse_choice<Format>("--format", arguments->format, kFormatNames);
            Output output(arguments->output);
            output.write(render_list(SpecRegistry(find_specs(arguments->specs)), format));
            return kAnswered;
          }};
}

}  // namespace

Command add_models(CLI::App& root) {
  return add_list(root, "models", "the models that --model knows by name",
                  [](const SpecRegistry& registry, Format format) { return render(registry.models(), format); });
}

Command add_gpus(CLI::App& root) {
  return add_list(root, "gpus", "the cards that --gpu knows by name",
                  [](const SpecRegistry& registry, Format format) { return render(registry.devices(), format); });
}

}  // namespace memcalc::cli
