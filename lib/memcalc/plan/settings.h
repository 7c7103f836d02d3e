// A run as settings of other programs: what `memcalc plan --emit` prints to copy.
// Covered by tests/unit/settings_test.cc and tests/cli/settings_test.py, which parses what is printed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// --emit. kTorchrun: lines of a training script; kDeepSpeed: its JSON; kMegatron: arguments of pretrain_gpt.py;
/// kTrainer: a call of transformers' TrainingArguments.
enum class Emit : std::uint8_t { kNothing, kTorchrun, kDeepSpeed, kMegatron, kTrainer };

/// Lines that end with a newline; empty for kNothing. Throws Error(kUnsupported) for kMegatron and a model that
/// Megatron-core does not build.
[[nodiscard]] std::string settings_of(const ModelSpec& model, const RunSpec& run, Emit emit);

/// What belongs to the run and has no place in those settings, a sentence each.
[[nodiscard]] std::vector<std::string> beside_settings(const RunSpec& run, Emit emit);

}  // namespace memcalc
