// memcalc weights: what the headers of weights on disk say.
#include <CLI/CLI.hpp>
#include <memory>

#include "arguments.h"
#include "command.h"
#include "output.h"

namespace memcalc::cli {
namespace {

struct WeightsArguments {
  std::string path;
  std::string format = "text";
  std::string output;
};

ExitStatus run_weights(const WeightsArguments& arguments) {
  if (arguments.path.empty()) {
    throw UsageError("weights: expected a path, found nothing; accepted: a safetensors file, its index or a directory");
  }
  const Format format = parse_format(arguments.format);
  Output output(arguments.output);
  output.write(render(read_weights(arguments.path), format));
  return kAnswered;
}

}  // namespace

Command add_weights(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("weights", "parameters and types of weights on disk, by their headers");
  app->get_formatter()->column_width(24);
  auto arguments = std::make_shared<WeightsArguments>();
  app->add_option("PATH", arguments->path, "safetensors file, its index, or a directory")->type_name("");
  app->add_option("--format", arguments->format, "text, json, csv or md [text]")->type_name("F")->group("Answer");
  app->add_option("--output", arguments->output, "write the answer to a file [standard output]")
      ->type_name("FILE")
      ->group("Answer");
  app->footer(
      "Examples:\n"
      "  memcalc weights model.safetensors\n"
      "  memcalc weights ./snapshot --format json\n");
  return {app, [arguments] { return run_weights(*arguments); }};
}

}  // namespace memcalc::cli
