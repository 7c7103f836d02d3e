// memcalc utilization: how well a running job uses its cards.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>

#include "answer_arguments.h"
#include "arguments.h"
#include "command.h"
#include "files.h"
#include "run_arguments.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

constexpr const char* kUtilizationExamples =
    "Examples:\n"
    "  memcalc utilization --achieved 100e12 --peak 312e12\n"
    "  memcalc utilization --samples-per-s 3 --seq 2048 --cards 4 --reference 3300\n"
    "  memcalc utilization --trace trace.json --model gpt2 --bs 8 --gpu h100-sxm\n"
    "  memcalc utilization --log train.log --model llama-3.2-1b --bs 4 --bf16\n";

struct UtilizationArguments {
  RunArguments run;
  std::string achieved, peak, samples, tokens, cards, reference, log, trace;
  AnswerArguments answer;
};

std::optional<double> number(const char* option, const std::string& text) {
  if (text.empty()) return std::nullopt;
  return parse_number(option, text);
}

ExitStatus run_utilization(const UtilizationArguments& a) {
  AnswerOutput output(a.answer);
  JobFigures job;
  job.achieved_flops_per_second = number("--achieved", a.achieved);
  job.peak_flops_per_second = number("--peak", a.peak);
  job.samples_per_second = number("--samples-per-s", a.samples);
  job.tokens_per_second = number("--tokens-per-s", a.tokens);
  job.reference_tokens_per_second = number("--reference", a.reference);
  if (!a.cards.empty()) job.gpus = parse_whole("--cards", a.cards, 1);
  const std::vector<TypedOption> typed = a.run.typed();
  if (is_typed(typed, "--seq")) job.sequence_length = parse_whole("--seq", text_of(typed, "--seq"), 1);
  if (!a.log.empty()) read_log(contents_of(a.log), job);
  std::optional<TraceSummary> trace;
  if (!a.trace.empty()) trace = read_chrome_trace(contents_of(a.trace, kMostTraceBytes), a.trace);
  std::optional<Report> predicted;
  if (is_typed(typed, "--model") || is_typed(typed, "--arch")) {
    const Question question = question_of(a.run);
    predicted = estimate(question.model, question.run, question.device);
    if (a.cards.empty()) job.gpus = predicted->run.parallel.gpus;
    if (job.sequence_length == 0) job.sequence_length = predicted->run.sequence_length;
    if (!job.peak_flops_per_second && predicted->time) {
      job.peak_flops_per_second = predicted->time->step.peak_flops_per_second;
    }
  }
  if (job.achieved_flops_per_second && !job.peak_flops_per_second && !predicted &&
      (is_typed(typed, "--gpu") || is_typed(typed, "--card"))) {
    // Without a model the card's rate for 16 bits, in which nearly all training computes.
    const DeviceSpec device = device_of(request_of(typed), SpecRegistry(find_specs(a.run.specs)));
    const double peak = std::max(device.bf16_flops_per_second, device.fp16_flops_per_second);
    if (peak > 0) job.peak_flops_per_second = peak;
  }
  output.write(answer_of(job, trace, predicted ? &*predicted : nullptr));
  return kAnswered;
}

}  // namespace

Command add_utilization(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("utilization", "how well a running job uses its cards");
  auto arguments = std::make_shared<UtilizationArguments>();
  const char* group = "Job";
  app->add_option("--achieved", arguments->achieved, "FLOP/s of one card")->type_name("X")->group(group);
  app->add_option("--peak", arguments->peak, "FLOP/s of one card, dense [the run's card]")
      ->type_name("X")
      ->group(group);
  app->add_option("--samples-per-s", arguments->samples, "of the whole job")->type_name("X")->group(group);
  app->add_option("--tokens-per-s", arguments->tokens, "of the whole job")->type_name("X")->group(group);
  app->add_option("--cards", arguments->cards, "GPUs of the job [1]")->type_name("N")->group(group);
  app->add_option("--reference", arguments->reference, "tokens/s of one card elsewhere")->type_name("X")->group(group);
  app->add_option("--log", arguments->log, "training log that states a throughput")->type_name("FILE")->group(group);
  app->add_option("--trace", arguments->trace, "Chrome trace of torch.profiler")->type_name("FILE")->group(group);
  add_run_options(line, *app, arguments->run);
  add_answer_options(*app, arguments->answer);
  app->footer(kUtilizationExamples);
  return {app, [arguments] { return run_utilization(*arguments); }, &arguments->run};
}

}  // namespace memcalc::cli
