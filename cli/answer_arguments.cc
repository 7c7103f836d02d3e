#include "answer_arguments.h"

#include <CLI/CLI.hpp>

#include "arguments.h"

namespace memcalc::cli {
namespace {

constexpr const char* kGroup = "Answer";

}  // namespace

void add_answer_options(CLI::App& command, AnswerArguments& arguments) {
  command.add_option("--format", arguments.format, "text, json, csv or md [text]")->type_name("F")->group(kGroup);
  command.add_flag("--explain", arguments.explain, "what is assumed and what is not modelled")
      ->disable_flag_override()
      ->group(kGroup);
  command.add_option("--output", arguments.output, "write the answer to a file [standard output]")
      ->type_name("FILE")
      ->group(kGroup);
  command.add_option("--color", arguments.color, "auto, always or never [auto: if on a terminal]")
      ->type_name("WHEN")
      ->group(kGroup);
}

AnswerOutput::AnswerOutput(const AnswerArguments& arguments)
    : format_(parse_format(arguments.format)), output_(arguments.output) {
  options_ = {.unicode = locale_is_utf8(), .explain = arguments.explain, .columns = output_.columns()};
  options_.color = wants_color(arguments.color, output_);
}

void AnswerOutput::write(const Answer& answer) { output_.write(render(answer, format_, options_)); }

}  // namespace memcalc::cli
