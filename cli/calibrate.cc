// memcalc calibrate: rates of a card from timings of its operators.
#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <memory>
#include <vector>

#include "arguments.h"
#include "command.h"
#include "files.h"
#include "output.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

struct CalibrateArguments {
  std::vector<std::string> files;
  std::string gpu = kAssumedDevice;
  std::string date;
  std::string specs;
  std::string output;
};

ExitStatus run_calibrate(const CalibrateArguments& arguments) {
  if (arguments.files.empty()) throw UsageError("calibrate: expected files of operator timings, found none");
  Output output(arguments.output);
  const SpecRegistry registry(find_specs(arguments.specs));
  const DeviceSpec device = registry.device(arguments.gpu);
  std::string rows;
  std::string command = "memcalc calibrate";
  for (const std::string& file : arguments.files) {
    rows += contents_of(file) + "\n";
    command += " " + file;
  }
  Calibration calibration = calibrate_device(device, *device.rates, rows, arguments.files.front());
  calibration.rates.measured_on = device.name;
  if (device.rates->predicted) calibration.rates.scaling = {};  // it was of another card
  calibration.rates.command = command + " --gpu " + arguments.gpu;
  if (!arguments.date.empty()) calibration.rates.date = arguments.date;
  for (const FitSummary& each : calibration.summary) {
    std::fprintf(stderr, "%-34s %5zu rows  median %5.1f %%  p90 %5.1f %%\n", each.name.c_str(), each.rows,
                 100 * each.median_error, 100 * each.p90_error);
  }
  output.write(render_rates(calibration.rates));
  return kAnswered;
}

}  // namespace

Command add_calibrate(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("calibrate", "rates of a GPU from timings of its operators");
  auto arguments = std::make_shared<CalibrateArguments>();
  app->add_option("FILES", arguments->files, "operator timings, JSON lines")->type_name("");
  app->add_option("--gpu", arguments->gpu, "the card they were measured on [h100-sxm]")->type_name("NAME");
  app->add_option("--date", arguments->date, "when, YYYY-MM [as the rates it starts from]")->type_name("DATE");
  app->add_option("--specs", arguments->specs, "directory of models/, gpus/ [$MEMCALC_SPEC_PATH]")->type_name("DIR");
  app->add_option("--output", arguments->output, "write the answer to a file [standard output]")->type_name("FILE");
  app->footer(
      "Examples:\n"
      "  memcalc calibrate tests/measured/op_times_h100.jsonl --gpu h100-sxm\n"
      "\n"
      "The answer is a card's rates.json of specs/measured; how well each operator is\n"
      "met goes to standard error.\n");
  return {app, [arguments] { return run_calibrate(*arguments); }};
}

}  // namespace memcalc::cli
