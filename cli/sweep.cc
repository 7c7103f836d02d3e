// memcalc sweep, compare, max-model: many runs side by side.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "answer_arguments.h"
#include "arguments.h"
#include "combinations.h"
#include "command.h"
#include "run_arguments.h"
#include "search.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

constexpr const char* kSweepExamples =
    "Examples:\n"
    "  memcalc sweep --model bert-large --bs 1..64*2 --seq 128,512 --fp16\n"
    "  memcalc sweep --model gpt2 --bs 8 --checkpointing none,full --format csv\n"
    "  memcalc sweep --model llama-3.2-1b --seq 512..4096+512 --bf16 --plot out.svg\n"
    "\n"
    "1..64*2 doubles, 512..4096+512 goes by 512, a,b is a list; of any option.\n";

constexpr const char* kCompareExamples =
    "Examples:\n"
    "  memcalc compare --model bert-large --bs 16 --fp16\n"
    "  memcalc compare --model llama-3-8b,mistral-7b --bs 1 --bf16 --gpu h100,h200\n"
    "  memcalc compare --model gpt2-xl --bs 8 --bf16 --gpu all --format md\n";

constexpr const char* kMaxModelExamples =
    "Examples:\n"
    "  memcalc max-model --family llama --bs 1 --bf16 --gpu h100-sxm\n"
    "  memcalc max-model --family qwen --bs 1 --lora 16 --bf16 --gpu rtx-4090\n"
    "\n"
    "Exit status: 0 answered; 1 none fits; 2 wrong input; 3 a bug.\n";

struct SweepArguments {
  RunArguments run;
  AnswerArguments answer;
  SearchArguments search;
  std::string plot, price, family;
};

/// What cannot be answered is said in the point's row.
SweepQuestion question_of(const std::vector<std::string>& values, const std::vector<TypedOption>& typed,
                          const std::string& specs) {
  SweepQuestion asked{.values = values};
  (void)request_of(typed);  // a value that no run takes is a mistake, not a point without an answer
  try {
    Question question = question_of(typed, specs);
    asked.candidate = Candidate{std::move(question.model), std::move(question.run.run), std::move(question.device)};
  } catch (const UsageError&) {
    throw;  // of the specs: it is of no point alone
  } catch (const std::exception& error) {
    asked.refusal = refusal_of(error);
  }
  return asked;
}

/// A card that does not exist is a mistake, not a point without an answer.
void check_card(const std::string& gpu, const std::string& specs) {
  if (!gpu.empty()) (void)SpecRegistry(find_specs(specs)).device(gpu);
}

/// Nor is a profile.
void check_profile(const std::string& profile, const std::string& specs) {
  if (profile.empty()) return;
  VersionOptions asked;
  asked.profile = profile;
  std::vector<std::string> notes;
  (void)SpecRegistry(find_specs(specs)).profiles().choose(asked, "", notes);
}

void check_names(const Combinations& combinations, const std::string& specs) {
  std::set<std::string> cards, profiles;
  for (const Combination& each : combinations.all) {
    const std::string gpu = text_of(each.typed, "--gpu"), profile = text_of(each.typed, "--profile");
    if (cards.insert(gpu).second) check_card(gpu, specs);
    if (profiles.insert(profile).second) check_profile(profile, specs);
  }
}

void refuse_if_nothing_is_left(const std::vector<SweepQuestion>& questions) {
  if (std::any_of(questions.begin(), questions.end(), [](const auto& each) { return each.candidate.has_value(); })) {
    return;
  }
  const Refusal& first = questions.front().refusal;
  throw Error(first.own_fault ? ErrorCode::kInternal : ErrorCode::kUsage, first.reason);
}

std::vector<SweepQuestion> questions_of(const Combinations& combinations, const std::string& specs,
                                        const Search& search) {
  check_names(combinations, specs);
  std::vector<SweepQuestion> questions;
  for (const Combination& each : combinations.all) {
    if (search.interrupted()) break;
    questions.push_back(question_of(each.values, each.typed, specs));
  }
  if (!search.interrupted()) refuse_if_nothing_is_left(questions);
  return questions;
}

ExitStatus finished(const Answer& answer, const Sweep& swept, const Search& search) {
  if (search.interrupted()) return kInterrupted;
  const bool positive = answer.positive || answer.command != "max-model";
  return with_faults(swept.own_faults(), positive ? kAnswered : kAnsweredNo);
}

ExitStatus run_sweep(const SweepArguments& arguments) {
  AnswerOutput output(arguments.answer);
  std::optional<Output> plot;
  if (!arguments.plot.empty()) plot.emplace(arguments.plot, "--plot");
  const Search search(arguments.search);
  const Combinations combinations = combinations_of(arguments.run);
  const std::vector<SweepQuestion> questions = questions_of(combinations, arguments.run.specs, search);
  Sweep swept = sweep(combinations.varied, questions, search.control());
  swept.complete = swept.complete && !search.interrupted();
  search.clear_progress();
  if (plot) plot->write(plot_of(swept));
  if (arguments.plot != "-") output.write(answer_of(swept));
  return finished(answer_of(swept), swept, search);
}

Prices prices_of(const SweepArguments& arguments) {
  Prices prices = read_prices(find_specs(arguments.run.specs));
  if (!arguments.price.empty()) {
    prices.given = checked_price(parse_number("--price", arguments.price));
    prices.note = "$" + arguments.price + " per GPU and hour, as given";
  }
  return prices;
}

/// The common cards of the model that these options name; of a question that cannot be asked, those of most models.
std::span<const char* const> cards_for(const std::vector<TypedOption>& typed, const std::string& specs) {
  const SweepQuestion asked = question_of({}, typed, specs);
  if (!asked.candidate) return kCommonCards;
  return common_cards(asked.candidate->model);
}

ExitStatus run_compare(const SweepArguments& arguments) {
  AnswerOutput output(arguments.answer);
  const Search search(arguments.search);
  Combinations combinations = combinations_of(arguments.run);
  std::vector<SweepQuestion> questions;
  if (!is_typed(arguments.run.typed(), "--gpu") && !is_typed(arguments.run.typed(), "--card")) {  // the common cards
    for (const Combination& each : combinations.all) {
      for (const char* card : cards_for(each.typed, arguments.run.specs)) {
        std::vector<std::string> values = each.values;
        values.emplace_back(card);
        questions.push_back(question_of(values, with(each.typed, "--gpu", card), arguments.run.specs));
      }
    }
    combinations.varied.emplace_back("gpu");
    refuse_if_nothing_is_left(questions);
  } else {
    questions = questions_of(combinations, arguments.run.specs, search);
  }
  const Sweep swept = sweep(combinations.varied, questions, search.control());
  const Answer answer = comparison_of(swept, prices_of(arguments));
  search.clear_progress();
  output.write(answer);
  return finished(answer, swept, search);
}

/// The models of a family, by size: those whose model_type or name begins so.
std::vector<ModelListing> family_of(const std::string& family, const std::string& specs) {
  std::vector<ModelListing> models = SpecRegistry(find_specs(specs)).models();
  const std::string wanted = ascii_lower(family);
  std::vector<std::string> types;
  for (const ModelListing& each : models) types.push_back(each.model_type);
  std::erase_if(models, [&](const ModelListing& each) {
    return !each.published_parameters ||
           (wanted != "all" && !each.model_type.starts_with(wanted) && !each.name.starts_with(wanted));
  });
  if (models.empty()) {
    throw UsageError("--family: expected a family or the beginning of a name (memcalc models), found '" +
                     one_line(family) + "'" + did_you_mean(family, types));
  }
  std::stable_sort(models.begin(), models.end(), [](const ModelListing& a, const ModelListing& b) {
    return *a.published_parameters < *b.published_parameters;
  });
  return models;
}

ExitStatus run_max_model(const SweepArguments& arguments) {
  AnswerOutput output(arguments.answer);
  const std::vector<TypedOption> typed = arguments.run.typed();
  if (is_typed(typed, "--model")) throw UsageError("--model: the model is what max-model looks for; give --family");
  if (arguments.family.empty()) throw UsageError("--family: expected a family (memcalc models lists them), or all");
  check_card(text_of(typed, "--gpu"), arguments.run.specs);
  const std::vector<ModelListing> models = family_of(arguments.family, arguments.run.specs);
  std::vector<SweepQuestion> questions;
  for (const ModelListing& each : models) {
    questions.push_back(question_of({each.name}, with(typed, "--model", each.name), arguments.run.specs));
  }
  refuse_if_nothing_is_left(questions);
  const Search search(arguments.search);
  Sweep swept = sweep({"model"}, questions, search.control());
  for (SweepPoint& point : swept.points) {
    const auto listing = std::find_if(models.begin(), models.end(),
                                      [&](const ModelListing& each) { return each.name == point.values.front(); });
    point.parameters = *listing->published_parameters;
  }
  const Answer answer = largest_model_of(swept);
  search.clear_progress();
  output.write(answer);
  return finished(answer, swept, search);
}

}  // namespace

Command add_sweep(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("sweep", "memory over the values of any options; a table or a plot");
  auto arguments = std::make_shared<SweepArguments>();
  add_run_options(line, *app, arguments->run);
  add_search_options(*app, arguments->search);
  add_answer_options(*app, arguments->answer);
  app->add_option("--plot", arguments->plot, "also draw stacked bars of the memory: an SVG file")
      ->type_name("FILE")
      ->group("Answer");
  app->footer(kSweepExamples);
  return {app, [arguments] { return run_sweep(*arguments); }, &arguments->run};
}

Command add_compare(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("compare", "models on cards: fit, headroom, time, price");
  auto arguments = std::make_shared<SweepArguments>();
  add_run_options(line, *app, arguments->run);
  app->add_option("--price", arguments->price, "dollars per GPU and hour [specs/prices.json]")
      ->type_name("USD")
      ->group("Search");
  add_search_options(*app, arguments->search);
  add_answer_options(*app, arguments->answer);
  app->footer(kCompareExamples);
  return {app, [arguments] { return run_compare(*arguments); }, &arguments->run};
}

Command add_max_model(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("max-model", "the largest model of a family that fits on a card");
  auto arguments = std::make_shared<SweepArguments>();
  add_run_options(line, *app, arguments->run);
  app->add_option("--family", arguments->family, "model_type or start of names (memcalc models), or all")
      ->type_name("F")
      ->group("Search");
  add_search_options(*app, arguments->search);
  add_answer_options(*app, arguments->answer);
  app->footer(kMaxModelExamples);
  return {app, [arguments] { return run_max_model(*arguments); }, &arguments->run};
}

}  // namespace memcalc::cli
