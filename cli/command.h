// A command of the command line: its options and what it does. One file each.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace memcalc::cli {

struct RunArguments;

/// The command line that commands are added to.
struct CommandLine {
  CLI::App& parser;
  // What was typed, where options of a run that are not among it need not be declared: CLI11 compares each that is
  // declared with those before it, which takes longer than a small estimate. Nothing: all are.
  std::optional<std::vector<std::string>> typed;

  /// Whether an option is to be declared: "--bs".
  [[nodiscard]] bool declares(std::string_view option) const;
};

/// What the process tells its caller; docs/cli.md, EXIT STATUS.
enum ExitStatus : int { kAnswered = 0, kAnsweredNo = 1, kWrongInput = 2, kInternalError = 3, kInterrupted = 130 };

struct Command {
  CLI::App* app = nullptr;
  std::function<ExitStatus()> run;    // after parsing
  RunArguments* arguments = nullptr;  // of commands that take a run: they may be told it by a command line behind "--"
};

[[nodiscard]] Command add_estimate(CommandLine& line);
[[nodiscard]] Command add_max_batch(CommandLine& line);
[[nodiscard]] Command add_max_seq(CommandLine& line);
[[nodiscard]] Command add_max_model(CommandLine& line);
[[nodiscard]] Command add_sweep(CommandLine& line);
[[nodiscard]] Command add_compare(CommandLine& line);
[[nodiscard]] Command add_ladder(CommandLine& line);
[[nodiscard]] Command add_plan(CommandLine& line);
[[nodiscard]] Command add_trace(CommandLine& line);
[[nodiscard]] Command add_models(CommandLine& line);
[[nodiscard]] Command add_gpus(CommandLine& line);
[[nodiscard]] Command add_programs(CommandLine& line);
[[nodiscard]] Command add_upgrade(CommandLine& line);
[[nodiscard]] Command add_profiles(CommandLine& line);
[[nodiscard]] Command add_utilization(CommandLine& line);
[[nodiscard]] Command add_check(CommandLine& line);
[[nodiscard]] Command add_calibrate(CommandLine& line);
[[nodiscard]] Command add_weights(CommandLine& line);
[[nodiscard]] Command add_completion(CommandLine& line);  // line.parser outlives it

}  // namespace memcalc::cli
