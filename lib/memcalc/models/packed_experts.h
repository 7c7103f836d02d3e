// The experts of a layer in a format that was quantised beforehand: transformers' FP8Experts and Mxfp4GptOssExperts.
// Until train/ loads them so they compute as any other; bitsandbytes, GPTQ and AWQ leave them as they are.
#pragma once

#include <cstddef>
#include <string>

#include "memcalc/symbolic/ops/expert_matrices.h"

namespace memcalc {

struct PackedExperts {
  std::string name;                 // of the module: "model.layers.0.mlp.experts"
  std::size_t first_parameter = 0;  // places of its parameters among the model's: gate_up_proj, its bias, down_proj, …
  std::size_t last_parameter = 0;
  bool has_biases = false;
  ExpertMatrices gate_up_proj, down_proj;

  [[nodiscard]] std::size_t gate_up_parameter() const { return first_parameter; }
  [[nodiscard]] std::size_t down_parameter() const { return first_parameter + (has_biases ? 2 : 1); }
};

}  // namespace memcalc
