// What --infer fills in. What it takes beside it: rules_inference.cc, and the rows of the table that exist in training
// alone. Covered by tests/unit/generate_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_options.h"

namespace memcalc {

/// Sets what a run without training has; `run` has its task and sizes.
void resolve_inference(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                       std::vector<std::string>& assumptions);

/// Whether the calls of generate() in `run`, whose purpose is set, have a KV cache.
[[nodiscard]] bool resolve_generation_cache(const ModelSpec& model, const RunSpec& run,
                                            std::vector<std::string>& assumptions);

}  // namespace memcalc
