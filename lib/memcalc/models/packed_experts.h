// What fine-tuning changes about the modules of a mixture that hold parameters and are no nn.Linear: its experts and
// its router. Adapters of either (param_wrapper.h), and experts in a format that was quantised beforehand:
// transformers' FP8Experts and Mxfp4GptOssExperts. Until train/ makes or loads them so they compute as any other;
// bitsandbytes, GPTQ and AWQ leave them as they are.
#pragma once

#include <cstddef>

#include "memcalc/models/param_wrapper.h"
#include "memcalc/symbolic/ops/expert_matrices.h"

namespace memcalc {

/// Of experts, its parameters are gate_up_proj, its bias, down_proj, …
struct PackedExperts : WrappedModule {
  bool has_biases = false;
  ExpertMatrices gate_up_proj, down_proj;

  [[nodiscard]] std::size_t gate_up_parameter() const { return first_parameter; }
  [[nodiscard]] std::size_t down_parameter() const { return first_parameter + (has_biases ? 2 : 1); }
};

}  // namespace memcalc
