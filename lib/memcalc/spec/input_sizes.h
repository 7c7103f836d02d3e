// How large a batch is: samples, tokens, pixels, as asked for or as the model usually has them.
// Covered by tests/unit/run_options_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_options.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Fills batch size, sequence lengths and image size of a run whose task is known; each default becomes an assumption.
void resolve_input_sizes(const ModelSpec& model, const RunOptions& options, RunSpec& run,
                         std::vector<std::string>& assumptions);

}  // namespace memcalc
