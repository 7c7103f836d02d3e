// A run as axolotl's YAML. Covered by tests/web/answers_test.py, which reads it again with --config.
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Of a training on one GPU by transformers' Trainer or TRL's SFTTrainer. Throws Error(kUnsupported) for any other.
[[nodiscard]] std::string axolotl_settings(const ModelSpec& model, const RunSpec& run);

/// What belongs to the run and axolotl does otherwise or has no key for, a sentence each.
[[nodiscard]] std::vector<std::string> beside_axolotl(const RunSpec& run);

}  // namespace memcalc
