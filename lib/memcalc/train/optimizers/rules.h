// The rules of each file of this folder.
#pragma once

#include <span>

#include "memcalc/train/optimizers/rule.h"

namespace memcalc {

[[nodiscard]] std::span<const OptimizerRule> adam_rules();
[[nodiscard]] std::span<const OptimizerRule> nadam_rules();
[[nodiscard]] std::span<const OptimizerRule> radam_rules();
[[nodiscard]] std::span<const OptimizerRule> adamax_rules();
[[nodiscard]] std::span<const OptimizerRule> sgd_rules();
[[nodiscard]] std::span<const OptimizerRule> adagrad_rules();
[[nodiscard]] std::span<const OptimizerRule> rmsprop_rules();
[[nodiscard]] std::span<const OptimizerRule> adafactor_rules();
[[nodiscard]] std::span<const OptimizerRule> torch_adafactor_rules();
[[nodiscard]] std::span<const OptimizerRule> muon_rules();
[[nodiscard]] std::span<const OptimizerRule> bitsandbytes_rules();
[[nodiscard]] std::span<const OptimizerRule> torchao_rules();

}  // namespace memcalc
