// Which software beside torch a run touches. Covered by tests/unit/profiles_test.cc.
#pragma once

#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// A base that bitsandbytes packs, or one of its optimizers.
[[nodiscard]] bool uses_bitsandbytes(const RunSpec& run);

[[nodiscard]] constexpr bool is_of_torchao(Optimizer optimizer) {
  return optimizer == Optimizer::kAdamWTorchao8bit || optimizer == Optimizer::kAdamWTorchao4bit;
}
/// Its float8 training, its optimizers of few bits, or its optimizer on the host.
[[nodiscard]] bool uses_torchao(const RunSpec& run);

}  // namespace memcalc
