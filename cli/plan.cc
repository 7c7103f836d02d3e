// memcalc ladder, memcalc plan: what to change so that a training fits, and how to spread it over GPUs.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "answer_arguments.h"
#include "arguments.h"
#include "command.h"
#include "run_arguments.h"
#include "search.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

constexpr const char* kLadderExamples =
    "Examples:\n"
    "  memcalc ladder --model gpt2-xl --bs 8 --gpu rtx-4090\n"
    "  memcalc ladder --model llama-3-8b --bs 4 --seq 2048 --gpu h100-sxm --all\n"
    "\n"
    "Exit status: 0 answered; 1 nothing makes it fit; 2 wrong input; 3 a bug.\n";

constexpr const char* kPlanExamples =
    "Examples:\n"
    "  memcalc plan --model llama-3.1-8b --gpus 8 --global-batch 16 --seq 8192 --bf16\n"
    "  memcalc plan --model gpt2-xl --gpus 4 --global-batch 64 --bf16 --emit torchrun\n"
    "  memcalc plan --model gpt2 --gpus 4 --global-batch 64 --tokens 9B --price 2.5\n"
    "\n"
    "Exit status: 0 answered; 1 nothing fits; 2 wrong input; 3 a bug.\n";

constexpr std::array<std::string_view, 5> kEmitNames = {"nothing", "torchrun", "deepspeed", "megatron", "trainer"};

struct PlanArguments {
  RunArguments run;
  AnswerArguments answer;
  SearchArguments search;
  std::string global_batch, simulate, tokens, price;
  std::string emit = "nothing";
  bool all = false;
};

ExitStatus finished(const Answer& answer, std::size_t own_faults, const Search& search) {
  if (search.interrupted()) return kInterrupted;
  return with_faults(own_faults, answer.positive ? kAnswered : kAnsweredNo);
}

ExitStatus run_ladder(const PlanArguments& arguments) {
  AnswerOutput output(arguments.answer);
  const Search search(arguments.search);
  const Question question = question_of(arguments.run);
  const Ladder ladder =
      climb(question.model, question.run, question.device, arguments.all, search.control(), question.time.host_size);
  const Answer answer = answer_of(ladder);
  search.clear_progress();
  output.write(answer);
  const auto faults =
      std::count_if(ladder.rungs.begin(), ladder.rungs.end(), [](const Rung& rung) { return rung.outcome.own_fault; });
  return finished(answer, static_cast<std::size_t>(faults), search);
}

/// What is searched is not to be given: how the GPUs are shared, micro-batches, checkpointing, what is offloaded.
void refuse_searched(const std::vector<TypedOption>& typed) {
  constexpr std::string_view kAsked[] = {"--gpus", "--nodes", "--framework"};
  constexpr std::string_view kSearched[] = {"--bs",       "--accum",    "--checkpointing", "--activation-offload",
                                            "--megatron", "--deepspeed"};
  const auto is_among = [](const auto& flags, std::string_view flag) {
    return std::find(std::begin(flags), std::end(flags), flag) != std::end(flags);
  };
  for (const TypedOption& each : typed) {
    const Field* field = find_field(each.flag);
    const bool splits = field != nullptr && field->group == FieldGroup::kParallel && !is_among(kAsked, each.flag);
    if (splits || is_among(kSearched, each.flag)) throw UsageError(each.flag + ": plan looks for it; leave it out");
  }
}

/// --loop: transformers' Trainer, or a trainer that runs in it.
bool runs_in_trainer(const std::string& loop) { return !loop.empty() && loop != "bare"; }

/// What --loop, --framework and --emit ask for must be one program's.
void refuse_other_programs(const std::string& loop, const std::string& framework, Emit emit) {
  if (emit == Emit::kTrainer && loop == "bare") {
    throw UsageError("--emit trainer: its arguments are the Trainer's, and --loop bare plans a plain loop");
  }
  if (emit == Emit::kTrainer && !framework.empty() && framework != "torch") {
    throw UsageError("--emit trainer: its arguments are of --framework torch, found '" + one_line(framework) + "'");
  }
  if (!runs_in_trainer(loop)) return;
  if (framework == "megatron") {
    throw UsageError("--loop " + one_line(loop) + ": the Trainer does not run --framework megatron");
  }
  if (emit == Emit::kTorchrun || emit == Emit::kMegatron) {
    throw UsageError("--loop " + one_line(loop) + ": --emit " + (emit == Emit::kMegatron ? "megatron" : "torchrun") +
                     " writes another program's settings; accepted: trainer or deepspeed");
  }
}

/// --framework, or those that --emit can write settings for and --loop runs.
std::vector<Framework> frameworks_of(const std::string& framework, Emit emit, const std::string& loop) {
  if (!framework.empty()) return {parse_choice<Framework>("--framework", framework, kFrameworkNames)};
  switch (emit) {
    case Emit::kTorchrun:
    case Emit::kTrainer: return {Framework::kTorch};
    case Emit::kDeepSpeed: return {Framework::kDeepSpeed};
    case Emit::kMegatron: return {Framework::kMegatron};
    case Emit::kNothing: break;
  }
  if (runs_in_trainer(loop)) return {Framework::kTorch, Framework::kDeepSpeed};
  return {Framework::kTorch, Framework::kDeepSpeed, Framework::kMegatron};
}

/// Tokens of a training: "1e12", "15T", "300B", "50M".
double parse_tokens(const std::string& text) {
  constexpr std::string_view kLetters = "KMBT";
  std::string digits = text;
  double scale = 1;
  if (const std::size_t letter = text.empty() ? kLetters.npos : kLetters.find(text.back()); letter != kLetters.npos) {
    digits.pop_back();
    for (std::size_t i = 0; i <= letter; ++i) scale *= 1e3;
  }
  constexpr double kMost = 1e18;  // as of estimate
  const double tokens = parse_number("--tokens", digits) * scale;
  if (tokens >= 1 && tokens <= kMost) return tokens;  // NaN is not
  throw UsageError("--tokens: expected 1 to 1e18 tokens, as 1e12 or 1T, found '" + one_line(text) + "'");
}

/// Of each GPU: its share of --host-memory, or of the card's usual host.
HostLimit host_limit_of(const PlanArguments& arguments, const HostSize& host, const PlanQuestion& asked) {
  const std::int64_t in_host = std::max<std::int64_t>(1, asked.gpus / std::max<std::int64_t>(1, asked.nodes));
  if (host.source == kHostMemoryOption) return {std::max<Bytes>(1, host.bytes / in_host), host.source};
  const auto usual = usual_host_of(find_specs(arguments.run.specs), asked.device.name);
  if (!usual) return {};
  return {usual->memory_bytes / usual->gpus, usual->source};
}

WholeTraining whole_training_of(const PlanArguments& arguments, const DeviceSpec& device) {
  if (arguments.tokens.empty()) {
    if (!arguments.price.empty()) throw UsageError("--price: it is of the whole training; accepted: with --tokens");
    return {};
  }
  WholeTraining whole{parse_tokens(arguments.tokens), device.usd_per_hour, device.price_source};
  if (!arguments.price.empty()) {
    whole.dollars_per_gpu_hour = checked_price(parse_number("--price", arguments.price));
    whole.price_source = "as given";
  }
  return whole;
}

ExitStatus run_plan(const PlanArguments& arguments) {
  AnswerOutput output(arguments.answer);
  const Emit emit = parse_choice<Emit>("--emit", arguments.emit, kEmitNames);
  const std::vector<TypedOption> typed = arguments.run.typed();
  refuse_searched(typed);
  const std::string framework = text_of(typed, "--framework"), loop = text_of(typed, "--loop");
  refuse_other_programs(loop, framework, emit);
  if (is_typed(typed, "--infer"))
    throw UsageError("--infer: plan spreads a training over GPUs; inference is modelled on one (memcalc --infer)");
  if (arguments.global_batch.empty()) {
    throw UsageError("--global-batch: expected the sequences of one optimizer step, of all GPUs");
  }
  // The run on one GPU, of which the rest follows.
  std::vector<TypedOption> one = without(typed, {"--gpus", "--nodes", "--framework"});
  // Most parallel modes are modelled in a plain loop.
  if (!is_typed(one, "--loop")) one = with(one, "--loop", emit == Emit::kTrainer ? "trainer" : "bare");
  Question question = question_beside(arguments.run, one);
  PlanQuestion asked{.model = std::move(question.model), .run = question.run.run, .device = std::move(question.device)};
  asked.emit = emit;
  asked.frameworks = frameworks_of(framework, emit, loop);
  asked.global_batch = parse_whole("--global-batch", arguments.global_batch, 1);
  const RunRequest split = request_of(typed);
  asked.gpus = split.run.gpus.value_or(asked.gpus);
  asked.nodes = split.run.parallel.nodes;
  if (!arguments.simulate.empty()) {
    asked.surveyed = static_cast<std::size_t>(parse_whole("--simulate", arguments.simulate, 1));
  }
  asked.host = host_limit_of(arguments, question.time.host_size, asked);
  asked.whole = whole_training_of(arguments, asked.device);
  const Search search(arguments.search);
  Plan plan = make_plan(asked, search.control());
  plan.assumptions = question.run.assumptions;
  const Answer answer = answer_of(asked, plan, emit);
  search.clear_progress();
  output.write(answer);
  return finished(answer, plan.own_faults, search);
}

}  // namespace

Command add_ladder(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("ladder", "technique by technique, until the run fits");
  auto arguments = std::make_shared<PlanArguments>();
  add_run_options(line, *app, arguments->run);
  app->add_flag("--all", arguments->all, "every technique, also beyond the first that fits")
      ->disable_flag_override()
      ->group("Search");
  add_search_options(*app, arguments->search);
  add_answer_options(*app, arguments->answer);
  app->footer(kLadderExamples);
  return {app, [arguments] { return run_ladder(*arguments); }, &arguments->run};
}

Command add_plan(CommandLine& line) {
  CLI::App* app =
      line.parser.add_subcommand("plan", "how to run a training on some GPUs: what fits, the fastest first");
  auto arguments = std::make_shared<PlanArguments>();
  add_run_options(line, *app, arguments->run);
  for (const Field& field : run_fields()) {
    if (field.group == FieldGroup::kParallel && field.key != "gpus" && field.key != "nodes") {
      arguments->run.searched.emplace_back(field.flag);
    }
  }
  for (const char* flag : {"--bs", "--accum", "--checkpointing", "--activation-offload", "--megatron", "--deepspeed"}) {
    arguments->run.searched.emplace_back(flag);
  }
  const auto option = [&](const char* name, std::string& value, const char* type, const char* description) {
    app->add_option(name, value, description)->type_name(type)->group("Search");
  };
  option("--global-batch", arguments->global_batch, "N", "sequences per optimizer step, of all GPUs");
  option("--tokens", arguments->tokens, "T", "of the whole training, as 1e12 or 1T: days and dollars");
  option("--price", arguments->price, "USD", "dollars per GPU and hour [the card's]");
  option("--simulate", arguments->simulate, "N", "candidates of a framework to look at, at most [128]");
  option("--emit", arguments->emit, "F", "torchrun, deepspeed, megatron or trainer: what to copy");
  add_search_options(*app, arguments->search);
  add_answer_options(*app, arguments->answer);
  app->footer(kPlanExamples);
  return {app, [arguments] { return run_plan(*arguments); }, &arguments->run};
}

}  // namespace memcalc::cli
