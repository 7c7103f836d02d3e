// memcalc estimate: will the run fit, and what fills the memory.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "arguments.h"
#include "command.h"
#include "memcalc/planning.h"
#include "output.h"
#include "run_arguments.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

constexpr const char* kEstimateExamples =
    "Examples:\n"
    "  memcalc --model bert-large --bs 4 --fp16\n"
    "  memcalc --model llama-3-8b --bs 1 --seq 4096 --precision bf16 --gpu h100-sxm\n"
    "  memcalc --model ./config.json --bs 8 --bf16 --checkpointing full --explain\n"
    "  memcalc --model gpt2-xl --bs 2 --gpu rtx-4090 --require-fit && ./train.sh\n"
    "  memcalc --model gpt2 --bs 8 --format json --output report.json\n"
    "  memcalc --config axolotl.yml --gpu rtx-4090\n"
    "  memcalc --model gpt2 -- accelerate launch train.py --bf16 --num_train_epochs 3\n"
    "\n"
    "Exit status: 0 answered; 1 does not fit (--require-fit); 2 wrong input; 3 a bug.\n";

struct EstimateArguments {
  RunArguments run;
  std::string format = "text";
  std::string color = "auto";
  std::string output;
  bool details = false;
  bool explain = false;
  bool require_fit = false;
  bool per_rank = false;
  bool no_remedies = false;
};

/// On which of the usual cards a run fits whose card nobody named. A thread asks for most of them while the caller
/// estimates the assumed card: three estimates more than double the time of the process.
class CommonCards {
 public:
  CommonCards(const SpecRegistry& registry, const Question& question) : question_(question) {
    std::vector<DeviceSpec> others;
    for (const char* name : common_cards(question.model)) {
      if (name == question.device.name) continue;
      others.push_back(registry.device(name, Rates::kLeave));
      others.back().margin_bytes = question.device.margin_bytes;
    }
    last_.push_back(std::move(others.back()));
    others.pop_back();
    first_ = std::async(std::launch::async, [&question, others = std::move(others)] {
      return fits_on(question.model, question.run.run, others);
    });
  }

  /// The report of the assumed card, with a row for each, the smallest card first.
  [[nodiscard]] Report report() {
    auto [report, rows] = estimate_beside(question_, last_);
    const std::vector<FitRow> others = first_.get();
    rows.insert(rows.begin(), others.begin(), others.end());
    rows.push_back({report.device.name, report.device.memory_bytes, report.needed(), report.needed_error,
                    report.device.usable_bytes() - report.needed(), report.verdict});
    std::stable_sort(rows.begin(), rows.end(),
                     [](const FitRow& a, const FitRow& b) { return a.memory_bytes < b.memory_bytes; });
    report.other_gpus = std::move(rows);
    return std::move(report);
  }

 private:
  const Question& question_;
  std::vector<DeviceSpec> last_;
  std::future<std::vector<FitRow>> first_;  // waits for the thread where the caller throws
};

ExitStatus run_estimate(const EstimateArguments& arguments) {
  const Format format = parse_format(arguments.format);
  Output output(arguments.output);
  RenderOptions options{.unicode = locale_is_utf8(),
                        .details = arguments.details,
                        .explain = arguments.explain,
                        .per_rank = arguments.per_rank};
  options.color = wants_color(arguments.color, output);
  const Question question = question_of(arguments.run);
  const bool on_one_card = !question.device_assumed || question.device.memory_given;
  std::optional<CommonCards> others;
  if (!on_one_card) others.emplace(SpecRegistry(find_specs(arguments.run.specs)), question);
  Report report = others ? others->report() : estimate(question);
  if (!question.run.run.trains() && !question.device_assumed) {
    report.concurrent_sequences =
        find_largest(question.model, question.run, question.device, {.neighbours = 0}).unhurried;
  }
  if (on_one_card && format != Format::kCsv && !arguments.no_remedies) {
    report.remedies = remedies_for(report);
  }
  report.config = arguments.run.config_file();
  if (report.config) std::erase(report.assumptions, assumptions_of(*report.config).front());  // a title of its own
  output.write(render(report, format, options));
  return arguments.require_fit && !report.fits() ? kAnsweredNo : kAnswered;
}

}  // namespace

Command add_estimate(CommandLine& line) {
  CLI::App* app =
      line.parser.add_subcommand("estimate", "peak memory of a training run, by category (the default command)");
  auto arguments = std::make_shared<EstimateArguments>();
  add_run_options(line, *app, arguments->run, true);
  const char* group = "Answer";
  app->add_option("--format", arguments->format, "text, json, csv or md [text]")->type_name("F")->group(group);
  app->add_flag("--details", arguments->details, "in text: phases, FLOPs, host, all that is assumed")->group("Answer");
  app->add_flag("--explain", arguments->explain, "details, terms with their rules, largest contributors")
      ->disable_flag_override()
      ->group(group);
  app->add_flag("--per-rank", arguments->per_rank, "several GPUs: what every distinct rank needs")
      ->disable_flag_override()
      ->group(group);
  app->add_flag("--no-remedies", arguments->no_remedies, "where it does not fit: do not look for what would")
      ->disable_flag_override()
      ->group(group);
  app->add_flag("--require-fit", arguments->require_fit, "exit with 1 where the run does not fit on the card")
      ->disable_flag_override()
      ->group(group);
  app->add_option("--output", arguments->output, "write the answer to a file [standard output]")
      ->type_name("FILE")
      ->group(group);
  app->add_option("--color", arguments->color, "auto, always or never [auto: if on a terminal]")
      ->type_name("WHEN")
      ->group(group);
  app->footer(kEstimateExamples);
  return {app, [arguments] { return run_estimate(*arguments); }, &arguments->run};
}

}  // namespace memcalc::cli
