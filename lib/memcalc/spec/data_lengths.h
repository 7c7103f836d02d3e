// What --lengths makes of a run: how long the samples of its data set are once its trainer has cut them. Covered by
// tests/unit/data_steps_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/run_options.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Sets the run's lengths, its sequence length and that of its completions. Pre: options.lengths. Throws Error(kUsage)
/// where no sample is left.
void resolve_lengths(const RunOptions& options, RunSpec& run, std::vector<std::string>& assumptions);

}  // namespace memcalc
