// What an estimate is asked, made of a command's arguments.
#pragma once

#include "memcalc/memcalc.h"
#include "run_arguments.h"

namespace memcalc::cli {

/// Everything that an estimate needs.
struct Question {
  SpecRegistry registry;
  ModelSpec model;
  ResolvedRun run;
  DeviceSpec device;
  bool device_assumed = false;
};

/// Throws UsageError or Error(kUsage, kInput).
[[nodiscard]] Question resolve_arguments(const RunArguments& arguments);

}  // namespace memcalc::cli
