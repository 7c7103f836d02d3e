// memcalc max-batch, memcalc max-seq: the largest that a card takes.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answer_arguments.h"
#include "arguments.h"
#include "combinations.h"
#include "command.h"
#include "run_arguments.h"
#include "search.h"

namespace memcalc::cli {
namespace {

constexpr const char* kBatchExamples =
    "Examples:\n"
    "  memcalc max-batch --model bert-large --fp16 --gpu rtx-4090\n"
    "  memcalc max-batch --model llama-3-8b --seq 4096 --bf16 --lora 8 --gpu h100\n"
    "  memcalc max-batch --model gpt2,gpt2-xl --gpu rtx-4090,h100-sxm --format csv\n"
    "\n"
    "Exit status: 0 answered; 1 not even the smallest fits; 2 wrong input; 3 a bug.\n";

constexpr const char* kSequenceExamples =
    "Examples:\n"
    "  memcalc max-seq --model llama-3.2-1b --bs 1 --bf16 --gpu rtx-4090\n"
    "  memcalc max-seq --model mistral-7b --precision bf16 --checkpointing full\n"
    "\n"
    "Exit status: 0 answered; 1 not even the smallest fits; 2 wrong input; 3 a bug.\n";

struct LargestArguments {
  RunArguments run;
  AnswerArguments answer;
  SearchArguments search;
  std::string multiple_of;
};

/// What is wrong with every combination is a wrong command line.
void refuse_if_all_are(const std::vector<std::optional<Largest>>& found) {
  const bool answered =
      std::any_of(found.begin(), found.end(), [](const auto& each) { return !each || each->refusal.empty(); });
  if (answered) return;
  const Largest& first = *found.front();
  throw Error(first.own_fault ? ErrorCode::kInternal : ErrorCode::kUsage, first.refusal);
}

std::size_t own_faults_of(const std::vector<Largest>& all) {
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [](const Largest& each) { return each.own_fault; }));
}

/// A batch that is looked for says nothing of how many micro-batches a step has.
void refuse_global_batch(const RunArguments& arguments, Measure measure) {
  if (measure != Measure::kBatch) return;
  const std::optional<ConfigFile>& file = arguments.config_file();
  if (!file || file->global_batch == 0) return;
  throw UsageError("/" + file->global_batch_key + ": " + std::to_string(file->global_batch) +
                   " samples a step say nothing of the batch that is looked for; accepted: --accum N (of a pipeline "
                   "--micro-batches N), or --config-without " +
                   file->global_batch_key);
}

ExitStatus run_largest(const LargestArguments& arguments, Measure measure) {
  AnswerOutput output(arguments.answer);
  LargestOptions options{.measure = measure};
  options.multiple_of = measure == Measure::kSequence ? 64 : 1;
  if (!arguments.multiple_of.empty()) options.multiple_of = parse_whole("--multiple-of", arguments.multiple_of, 1);
  if (is_typed(arguments.run.typed(), measure == Measure::kBatch ? "--bs" : "--seq")) {
    throw UsageError(measure == Measure::kBatch ? "--bs: the batch is what max-batch looks for; leave it out"
                                                : "--seq: the sequence is what max-seq looks for; leave it out");
  }
  refuse_global_batch(arguments.run, measure);
  const Search search(arguments.search);
  const Combinations combinations = combinations_of(arguments.run);
  const bool one = combinations.all.size() == 1;
  if (!one) options.neighbours = 0;  // a table has no room for what they would tell
  std::vector<std::optional<Largest>> found(combinations.all.size());
  const auto look = [&](std::size_t i, const SearchControl& control) {
    const Question question = question_beside(arguments.run, combinations.all[i].typed);
    LargestOptions on_host = options;
    on_host.host = question.time.host_size;
    found[i] = find_largest(question.model, question.run, question.device, on_host, control);
  };
  // Of several, one that cannot be answered is a row with its reason.
  const auto look_or_say_why_not = [&](std::size_t i, const SearchControl& control) {
    (void)request_of(combinations.all[i].typed);  // a value that no run takes is a mistake, not one without an answer
    try {
      look(i, control);
    } catch (const UsageError&) {
      throw;  // of the specs: it is of no combination alone
    } catch (const std::exception& error) {
      Refusal refusal = refusal_of(error);
      const std::vector<TypedOption>& asked = combinations.all[i].typed;
      found[i].emplace();
      found[i]->model = text_of(asked, "--model");
      found[i]->options = options;
      found[i]->refusal = std::move(refusal.reason);
      found[i]->own_fault = refusal.own_fault;
      found[i]->device.name = text_of(asked, "--gpu");
    }
  };
  if (one) {
    look(0, search.control());
  } else {
    const SearchControl alone{.threads = 1, .progress = {}, .stop = search.control().stop};
    (void)for_each_index(found.size(), search.control(), [&](std::size_t i) { look_or_say_why_not(i, alone); });
    refuse_if_all_are(found);
  }
  std::vector<Largest> answered;
  std::vector<std::vector<std::string>> values;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) continue;
    answered.push_back(*std::move(found[i]));
    values.push_back(combinations.all[i].values);
  }
  const Answer answer = one ? answer_of(answered.at(0)) : answer_of(answered, combinations.varied, values);
  search.clear_progress();
  output.write(answer);
  if (search.interrupted()) return kInterrupted;
  return with_faults(own_faults_of(answered), answer.positive ? kAnswered : kAnsweredNo);
}

Command add_largest(CommandLine& line, const char* name, const char* description, const char* examples,
                    Measure measure) {
  CLI::App* app = line.parser.add_subcommand(name, description);
  auto arguments = std::make_shared<LargestArguments>();
  add_run_options(line, *app, arguments->run);
  arguments->run.searched = {measure == Measure::kBatch ? "--bs" : "--seq"};
  app->add_option("--multiple-of", arguments->multiple_of, "of which only multiples are tried [1; max-seq 64]")
      ->type_name("N")
      ->group("Search");
  add_search_options(*app, arguments->search);
  add_answer_options(*app, arguments->answer);
  app->footer(examples);
  return {app, [arguments, measure] { return run_largest(*arguments, measure); }, &arguments->run};
}

}  // namespace

Command add_max_batch(CommandLine& line) {
  return add_largest(line, "max-batch", "the largest batch that fits on a card", kBatchExamples, Measure::kBatch);
}

Command add_max_seq(CommandLine& line) {
  return add_largest(line, "max-seq", "the longest sequence that fits on a card", kSequenceExamples,
                     Measure::kSequence);
}

}  // namespace memcalc::cli
