// The options that say how an answer is written, shared by the planner's commands.
#pragma once

#include <string>

#include "memcalc/planning.h"
#include "output.h"

namespace CLI {
class App;
}

namespace memcalc::cli {

/// As typed.
struct AnswerArguments {
  std::string format = "text";
  std::string color = "auto";
  std::string output;
  bool explain = false;
};

/// Declares the options on a command; `arguments` must outlive it.
void add_answer_options(CLI::App& command, AnswerArguments& arguments);

/// Where an answer goes and how it looks. Made before the work begins, so that a file that cannot be written is refused
/// at once.
class AnswerOutput {
 public:
  explicit AnswerOutput(const AnswerArguments& arguments);
  void write(const Answer& answer);

 private:
  Format format_;
  Output output_;
  RenderOptions options_;
};

}  // namespace memcalc::cli
