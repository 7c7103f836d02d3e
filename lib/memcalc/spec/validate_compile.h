// Of a run that is compiled, or whose layers compute in float8: which choices beside it are modelled.
#pragma once

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Throws Error(kUsage) with what is accepted. Covered by tests/unit/compile_test.cc.
void check_compiled_parts(const ModelSpec& model, const RunSpec& run);

}  // namespace memcalc
