// The command line of memcalc-probe. Covered by tests/cli/probe_test.py, which needs no card.
#pragma once

#include <string>
#include <vector>

#include "host.h"
#include "measure.h"

namespace memcalc::probe {

enum class Command { kHelp, kHost, kMeasure, kRun };

struct Arguments {
  Command command = Command::kHelp;
  HostOptions host;
  MeasureOptions measure;
  std::string replay_path;
};

/// Throws InputError.
[[nodiscard]] Arguments parse(const std::vector<std::string>& words);

}  // namespace memcalc::probe
