// GRPOTrainer's cast_lm_head_to_fp32 (trl 1.16, trainer/grpo_trainer.py, _cast_lm_head_to_fp32): the head's weight
// becomes float32, and with it an embedding that shares it. What the head does then is symbolic/modes.h's
// head_in_float32. Covered by tests/unit/trl_test.cc.
#pragma once

#include "memcalc/models/model.h"
#include "memcalc/spec/run_spec.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

void cast_head_to_float32(Tape& tape, const Model& model, const RunSpec& run);

}  // namespace memcalc
