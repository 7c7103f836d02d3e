// What the framework or the trainer of a run takes where no option says it: Megatron-LM, LitGPT, TRL, diffusers'
// scripts, sentence-transformers. Covered by tests/unit/run_options_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_options.h"

namespace memcalc {

/// The options with those defaults; each that is not plain becomes an assumption.
[[nodiscard]] RunOptions with_framework_defaults(const ModelSpec& model, const RunOptions& asked,
                                                 std::vector<std::string>& assumptions);

}  // namespace memcalc
