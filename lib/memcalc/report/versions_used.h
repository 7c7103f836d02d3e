// Which software of which version a run touches. Covered by tests/unit/profiles_test.cc.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "memcalc/spec/model_spec.h"
#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// {"torch", "2.11.0"}, {"cuda", "13.0"}, {"transformers", "5.17.0"}, …: what this run is answered for, in this order.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> versions_used(const ModelSpec& model,
                                                                             const RunSpec& run);

/// "torch 2.11.0 (CUDA 13.0, cuDNN 9.19), transformers 5.17.0"
[[nodiscard]] std::string versions_text(const std::vector<std::pair<std::string, std::string>>& versions);

}  // namespace memcalc
