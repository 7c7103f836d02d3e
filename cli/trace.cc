// memcalc trace: the allocator's event stream of one step.
#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <optional>

#include "arguments.h"
#include "command.h"
#include "output.h"
#include "run_arguments.h"

namespace memcalc::cli {
namespace {

constexpr std::array<std::string_view, 3> kFormatNames = {"tsv", "json", "replay"};
constexpr std::array<std::string_view, 2> kStepNames = {"last", "all"};

constexpr const char* kTraceExamples =
    "Examples:\n"
    "  memcalc trace --model bert-large --bs 4 --fp16 --gpu h100-sxm | head\n"
    "  memcalc trace --model gpt2 --bs 8 --loop bare --events all --output gpt2.tsv\n"
    "  memcalc trace --model llama-3.2-1b --bs 1 --format json --output snapshot.json\n"
    "  memcalc trace --model llama-3.2-1b --bs 1 --bf16 --plot step.svg\n"
    "\n"
    "replay: every event and kernel, for memcalc-probe run.\n"
    "Columns of tsv: phase, bytes of the block (-: freed), allocated, reserved,\n"
    "operators, shapes (not kept). json: the form of torch.cuda.memory._snapshot().\n";

struct TraceArguments {
  RunArguments run;
  std::string format = "tsv";
  std::string steps = "last";
  std::string output;
  std::string plot;
};

ExitStatus run_trace(const TraceArguments& arguments) {
  TraceOptions options;
  enum class Choice { kTsv, kSnapshot, kReplay };
  const auto format = parse_choice<Choice>("--format", arguments.format, kFormatNames);
  options.format = format == Choice::kSnapshot ? TraceFormat::kSnapshot : TraceFormat::kTsv;
  enum class Steps { kLast, kAll };
  options.all_steps = parse_choice<Steps>("--events", arguments.steps, kStepNames) == Steps::kAll;
  Output output(arguments.output);
  std::optional<Output> plot;
  if (!arguments.plot.empty()) plot.emplace(arguments.plot, "--plot");
  const Question question = question_of(arguments.run);
  if (plot) {
    plot->write(plot_step(question.model, question.run.run, question.device));
    return kAnswered;
  }
  if (format == Choice::kReplay) {
    output.write(replay_file(question.model, question.run.run, question.device));
    return kAnswered;
  }
  output.write(trace(question.model, question.run.run, question.device, options));
  return kAnswered;
}

}  // namespace

Command add_trace(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("trace", "the allocator's event stream, block by block");
  auto arguments = std::make_shared<TraceArguments>();
  add_run_options(line, *app, arguments->run);
  const char* group = "Answer";
  app->add_option("--format", arguments->format, "tsv, json (a PyTorch memory snapshot), replay [tsv]")
      ->type_name("F")
      ->group(group);
  app->add_option("--events", arguments->steps, "last step (steady), or all, with construction [last]")
      ->type_name("S")
      ->group(group);
  app->add_option("--output", arguments->output, "write the answer to a file [standard output]")
      ->type_name("FILE")
      ->group(group);
  app->add_option("--plot", arguments->plot, "draw the step's memory instead: an SVG file")
      ->type_name("FILE")
      ->group(group);
  app->footer(kTraceExamples);
  return {app, [arguments] { return run_trace(*arguments); }, &arguments->run};
}

}  // namespace memcalc::cli
