// The lines of a PyTorch training script that make a run: `memcalc plan --emit torchrun`.
#pragma once

#include <string>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// Python for torch 2.11, with its imports. It expects `model`, on the GPU, and sets up everything in front of the
/// first batch; the loop itself stands at its end as a function.
[[nodiscard]] std::string training_script(const ModelSpec& model, const RunSpec& run);

}  // namespace memcalc
