// A command of the command line: its options and what it does. One file each.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace memcalc::cli {

struct RunArguments;

/// What the process tells its caller; docs/cli.md, EXIT STATUS.
enum ExitStatus : int { kAnswered = 0, kAnsweredNo = 1, kWrongInput = 2, kInternalError = 3, kInterrupted = 130 };

struct Command {
  CLI::App* app = nullptr;
  std::function<ExitStatus()> run;    // after parsing
  RunArguments* arguments = nullptr;  // of commands that take a run: they may be told it by a command line behind "--"
};

[[nodiscard]] Command add_estimate(CLI::App& root);
[[nodiscard]] Command add_max_batch(CLI::App& root);
[[nodiscard]] Command add_max_seq(CLI::App& root);
[[nodiscard]] Command add_max_model(CLI::App& root);
[[nodiscard]] Command add_sweep(CLI::App& root);
[[nodiscard]] Command add_compare(CLI::App& root);
[[nodiscard]] Command add_ladder(CLI::App& root);
[[nodiscard]] Command add_plan(CLI::App& root);
[[nodiscard]] Command add_trace(CLI::App& root);
[[nodiscard]] Command add_models(CLI::App& root);
[[nodiscard]] Command add_gpus(CLI::App& root);
[[nodiscard]] Command add_programs(CLI::App& root);
[[nodiscard]] Command add_upgrade(CLI::App& root);
[[nodiscard]] Command add_profiles(CLI::App& root);
[[nodiscard]] Command add_utilization(CLI::App& root);
[[nodiscard]] Command add_check(CLI::App& root);
[[nodiscard]] Command add_calibrate(CLI::App& root);
[[nodiscard]] Command add_weights(CLI::App& root);
[[nodiscard]] Command add_completion(CLI::App& root);  // root outlives it

}  // namespace memcalc::cli
