// memcalc estimate: will the run fit, and what fills the memory.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "arguments.h"
#include "command.h"
#include "memcalc/planning.h"
#include "output.h"
#include "question.h"
#include "run_arguments.h"

namespace memcalc::cli {
namespace {

constexpr std::array<std::string_view, 4> kFormatNames = {"text", "json", "csv", "md"};

constexpr const char* kExamples =
    "Examples:\n"
    "  memcalc --model bert-large --bs 4 --fp16\n"
    "  memcalc --model llama-3-8b --bs 1 --seq 4096 --precision bf16 --gpu h100-sxm\n"
    "  memcalc --model ./config.json --bs 8 --bf16 --checkpointing full --explain\n"
    "  memcalc --model gpt2-xl --bs 2 --gpu rtx-4090 --require-fit && ./train.sh\n"
    "  memcalc --model gpt2 --bs 8 --format json --output report.json\n"
    "\n"
    "Exit status: 0 answered; 1 does not fit (--require-fit); 2 wrong input; 3 a bug.\n";

struct EstimateArguments {
  RunArguments run;
  std::string format = "text";
  std::string color = "auto";
  std::string output;
  std::string tokens, sample_seconds, sample_bytes, storage_rate;
  bool explain = false;
  bool require_fit = false;
  bool per_rank = false;
};

std::vector<FitRow> fits_on_common_cards(const Question& question, const Report& report) {
  std::vector<DeviceSpec> others;
  for (const char* name : kCommonCards) {
    if (name != report.device.name) others.push_back(question.registry.device(name));
  }
  const Bytes needed = report.device_used_bytes.value_or(report.memory.peak_reserved);
  // Cards whose context was not measured are given the assumed card's.
  const Bytes managed = report.device_used_bytes ? report.managed_on_device_bytes : 0;
  const Bytes context = needed - managed - report.memory.peak_reserved;
  std::vector<FitRow> rows = fits_on(question.model, question.run.run, others, context);
  rows.push_back({report.device.name, report.device.memory_bytes, needed, report.fits});
  std::stable_sort(rows.begin(), rows.end(),
                   [](const FitRow& a, const FitRow& b) { return a.memory_bytes < b.memory_bytes; });
  return rows;
}

// What is said of the data and of the whole training.
void add_time(const EstimateArguments& a, Report& report) {
  if (!a.sample_seconds.empty() || !a.sample_bytes.empty()) {
    if (!report.time) throw UsageError("--sample-seconds: no step time is known of this GPU");
    InputPipeline input;
    if (!a.sample_seconds.empty()) input.sample_seconds = parse_number("--sample-seconds", a.sample_seconds);
    if (!a.sample_bytes.empty()) input.sample_bytes = parse_number("--sample-bytes", a.sample_bytes);
    if (!a.storage_rate.empty()) input.storage_bytes_per_second = parse_number("--storage-rate", a.storage_rate);
    if (input.sample_bytes > 0 && input.storage_bytes_per_second <= 0) {
      throw UsageError("--sample-bytes: expected --storage-rate beside it, found none");
    }
    feed(report, input);
  }
  if (!a.tokens.empty() && report.run.inference) throw UsageError("--tokens: belongs to training; --infer has none");
  if (!a.tokens.empty()) report.training = training_run_of(report, parse_number("--tokens", a.tokens));
}

ExitStatus run_estimate(const EstimateArguments& arguments) {
  const Format format = parse_choice<Format>("--format", arguments.format, kFormatNames);
  Output output(arguments.output);
  RenderOptions options{.unicode = locale_is_utf8(), .explain = arguments.explain, .per_rank = arguments.per_rank};
  options.color = wants_color(arguments.color, output);
  const Question question = resolve_arguments(arguments.run);
  Report report = estimate(question.model, question.run, question.device);
  report.device_assumed = question.device_assumed;
  add_time(arguments, report);
  if (question.run.run.inference && !question.device_assumed) {
    report.concurrent_sequences =
        find_largest(question.model, question.run, question.device, {.neighbours = 0}).unhurried;
  }
  if (question.device_assumed) report.other_gpus = fits_on_common_cards(question, report);
  output.write(render(report, format, options));
  return arguments.require_fit && !report.fits ? kAnsweredNo : kAnswered;
}

}  // namespace

Command add_estimate(CLI::App& root) {
  CLI::App* app = root.add_subcommand("estimate", "peak memory of a training run, by category (the default command)");
  auto arguments = std::make_shared<EstimateArguments>();
  add_run_options(*app, arguments->run);
  const char* time = "Time";
  app->add_option("--tokens", arguments->tokens, "of the whole training: days, price, energy")
      ->type_name("T")
      ->group(time);
  app->add_option("--sample-seconds", arguments->sample_seconds, "of a loader worker for a sample [0]")
      ->type_name("S")
      ->group(time);
  app->add_option("--sample-bytes", arguments->sample_bytes, "read from storage for a sample [0]")
      ->type_name("N")
      ->group(time);
  app->add_option("--storage-rate", arguments->storage_rate, "bytes/s of the storage")->type_name("R")->group(time);
  const char* group = "Answer";
  app->add_option("--format", arguments->format, "text, json, csv or md [text]")->type_name("F")->group(group);
  app->add_flag("--explain", arguments->explain, "every term with its rule, the largest contributors")
      ->disable_flag_override()
      ->group(group);
  app->add_flag("--per-rank", arguments->per_rank, "several GPUs: what every distinct rank needs")
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
  app->footer(kExamples);
  return {app, [arguments] { return run_estimate(*arguments); }};
}

}  // namespace memcalc::cli
