// What --infer means beside a training run's options: which of them it has no use for, and what it fills in.
// Covered by tests/unit/generate_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_options.h"

namespace memcalc {

/// Sets what a run without training has; `run` has its task and sizes. Throws Error(kUsage) for an option of training.
void resolve_inference(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                       std::vector<std::string>& assumptions);

/// Throws Error(kUsage) for what transformers would refuse, Error(kUnsupported) for what is not modelled.
void check_inference(const ModelSpec& model, const RunSpec& run);

}  // namespace memcalc
