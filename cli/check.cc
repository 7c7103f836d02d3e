// memcalc check: predictions beside measured rows.
#include <CLI/CLI.hpp>
#include <memory>

#include "answer_arguments.h"
#include "arguments.h"
#include "command.h"
#include "files.h"
#include "spec_path.h"

namespace memcalc::cli {
namespace {

constexpr const char* kCheckExamples =
    "Examples:\n"
    "  memcalc check rows.jsonl --max-step-error 0.1\n"
    "  memcalc check rows.jsonl --max-step-error 0.2 --format csv --output errors.csv\n"
    "\n"
    "Exit status: 0 enough rows are within the tolerance; 1 too few; 2 wrong input.\n";

struct CheckArguments {
  std::string rows;
  std::string models;
  std::string specs;
  std::string allocated = "0.01", reserved = "0.01", step = "0.15", share = "0.9";
  AnswerArguments answer;
};

ExitStatus run_check(const CheckArguments& a) {
  if (a.rows.empty()) throw UsageError("check: expected a file of measured rows, found none");
  CheckTolerance tolerance;
  tolerance.allocated = parse_number("--max-allocated-error", a.allocated);
  tolerance.reserved = parse_number("--max-reserved-error", a.reserved);
  tolerance.step = parse_number("--max-step-error", a.step);
  tolerance.share = parse_number("--min-share", a.share);
  AnswerOutput output(a.answer);
  const SpecRegistry registry(find_specs(a.specs));
  const std::string models = a.models.empty() ? std::string() : contents_of(a.models);
  const Answer answer = answer_of(check_rows(registry, contents_of(a.rows), a.rows, models), tolerance);
  output.write(answer);
  return answer.positive ? kAnswered : kAnsweredNo;
}

}  // namespace

Command add_check(CommandLine& line) {
  CLI::App* app = line.parser.add_subcommand("check", "predictions beside measured rows");
  auto arguments = std::make_shared<CheckArguments>();
  app->add_option("ROWS", arguments->rows, "measured rows, JSON lines")->type_name("");
  app->add_option("--models", arguments->models, "configs of models by name [the registry]")->type_name("FILE");
  const char* group = "Tolerance";
  app->add_option("--max-allocated-error", arguments->allocated, "relative; 0: any [0.01]")
      ->type_name("X")
      ->group(group);
  app->add_option("--max-reserved-error", arguments->reserved, "relative; 0: any [0.01]")->type_name("X")->group(group);
  app->add_option("--max-step-error", arguments->step, "relative; 0: any [0.15]")->type_name("X")->group(group);
  app->add_option("--min-share", arguments->share, "of rows within all of them [0.9]")->type_name("X")->group(group);
  app->add_option("--specs", arguments->specs, "directory of models/, gpus/ [$MEMCALC_SPEC_PATH]")->type_name("DIR");
  add_answer_options(*app, arguments->answer);
  app->footer(kCheckExamples);
  return {app, [arguments] { return run_check(*arguments); }};
}

}  // namespace memcalc::cli
