// What torch's own parallel modules, and accelerate's, refuse or leave to the user, and what of them is modelled.
// Covered by tests/unit/parallel_options_test.cc.
#pragma once

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Throws Error(kUsage) for a combination that torch refuses or that is not modelled. Part of check_parallel().
void check_torch_parallel(const ModelSpec& model, const RunSpec& run);

}  // namespace memcalc
