// Whether a model can be run as asked. In the library, so that every face (command line, Python, planner) refuses the
// same things in the same words. Covered by tests/unit/run_options_test.cc.
#pragma once

#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Throws Error(kUsage) for numbers out of range, a sequence beyond the model's positions, a head that the family does
/// not have, and combinations that the framework itself refuses.
void validate(const ModelSpec& model, const RunSpec& run);

}  // namespace memcalc
