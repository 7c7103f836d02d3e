// What TRL's trainers do with adapters beyond peft: the types that they cast them to, and how their layers are
// checkpointed. Covered by tests/unit/fine_tuning_test.cc and tests/unit/trl_test.cc.
#pragma once

#include <string>
#include <vector>

#include "memcalc/spec/run_spec.h"

namespace memcalc {

/// trl 1.16, trainer/…_trainer.py (_is_quantized_model); its experimental trainers prepare a packed base otherwise.
[[nodiscard]] bool prepares_adapters_itself(const RunSpec& run);

/// trl 1.16: SFTTrainer and the others (…_trainer.py, "ZeRO-3 + PEFT for non-quantized models"). ORPO's checkpoints
/// stay as they are, online DPO does neither.
void resolve_trl_adapters(RunSpec& run, std::vector<std::string>& assumptions);

}  // namespace memcalc
