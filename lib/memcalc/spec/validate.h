// Whether a model can be run as asked. In the library, so that every face (command line, Python, planner) refuses the
// same things in the same words. Covered by tests/unit/run_options_test.cc and tests/unit/rules_test.cc.
#pragma once

#include "memcalc/spec/model_kind.h"
#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Throws the Error of a number beyond its bounds (run_fields.h), of the first rule that is broken (rules.h), or of the
/// layer of a user's own model that does not fit the one before (custom_shapes.h).
void validate(const ModelSpec& model, const RunSpec& run);

}  // namespace memcalc
