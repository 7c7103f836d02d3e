// accelerate's convert_outputs_to_fp32, which is around the forward pass of a model under autocast. Covered by
// tests/measured/jobs_test.py.
// MIRRORS(accelerate, "utils/operations.py", "1.15.0")
#pragma once

#include "memcalc/models/model.h"

namespace memcalc {

/// recursively_apply() makes a new mapping of outputs, beside which all of the old one lives.
void convert_to_float32(ModelOutput& outputs);

}  // namespace memcalc
