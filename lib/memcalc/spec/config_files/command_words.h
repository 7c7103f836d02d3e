// Internal to spec/config_files: the words of a training's command line, taken apart into launcher, script and
// arguments. Covered by tests/unit/config_files_test.cc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "memcalc/spec/json_node.h"

namespace memcalc::config {

/// Arguments of `accelerate launch`, or its --config_file.
struct Launcher {
  JsonNode arguments;
  std::string file;
  std::string prefix;
};

struct Command {
  std::string format;  // of config_formats(); empty: by its keys
  JsonNode arguments;  // of the script, over those of a file that it names
  std::vector<Launcher> launchers;
  std::optional<std::int64_t> gpus;
  bool sees_gpus = false;  // so many are what one process sees
  std::int64_t nodes = 1;
  std::string gpus_key;                 // the argument that says so
  std::string script;                   // "run_glue.py"; empty: a tool's own program
  bool is_launched = false;             // a process for each GPU: torchrun, accelerate launch, deepspeed, a tool's own
  bool expandable_segments = false;     // the allocator's configuration in the environment
  std::string allocator_key;            // the variable that has it; empty: none
  std::string other_allocator_options;  // of it
  std::vector<std::string> irrelevant;  // other arguments of the launcher
};

/// Throws Error(kUsage) for words that are no such command line.
[[nodiscard]] Command read_command(std::span<const std::string> words);

}  // namespace memcalc::config
