// Whether Megatron-core can split and run a model as asked. Part of check_parallel().
// Covered by tests/unit/megatron_options_test.cc.
#pragma once

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Throws Error(kUsage) for sizes that Megatron-core refuses and for what is not modelled of it.
void check_megatron(const ModelSpec& model, const RunSpec& run);

}  // namespace memcalc
