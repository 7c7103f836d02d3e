// What the page asks: a request as JSON, its answer as JSON. Above memcalc.h and planning.h as the command line is, and
// with its renderers, so that both say the same. Covered by tests/web/answers_test.py.
//
//   {"ask": "estimate", "options": {"--model": "gpt2", "--bs": "4", "--padding": ""}}
//   {"report": {…}, "curve": {…}, "command": "memcalc --model gpt2 …", "certainty": {…}}
//   {"error": {"message": "--bs: expected …", "part": "--bs", "rule": "", "ours": false}}
#pragma once

#include <string>
#include <string_view>

#include "memcalc/planning.h"

namespace memcalc::web {

class Answers {
 public:
  /// `specs`: a folder with models/, gpus/ and what else specs/ has.
  explicit Answers(const std::string& specs) : registry_(specs), specs_(specs) {}

  /// Never throws: what is wrong is an answer, too.
  [[nodiscard]] std::string answer(std::string_view request);

  /// As question_of(); the model that was asked for last is kept.
  [[nodiscard]] Question question(const RunRequest& request);

  [[nodiscard]] const SpecRegistry& registry() const { return registry_; }
  [[nodiscard]] const std::string& specs() const { return specs_; }

 private:
  SpecRegistry registry_;
  std::string specs_;
};

}  // namespace memcalc::web
