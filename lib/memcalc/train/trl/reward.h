// The loss of TRL's RewardTrainer (trl 1.16, trainer/reward_trainer.py). Covered by tests/measured/jobs_test.py.
// MIRRORS(trl, "trainer/reward_trainer.py", "1.16.0")
#pragma once

#include "memcalc/train/trl/losses.h"

namespace memcalc {

/// RewardTrainer.compute_loss without margins and without centering: -logsigmoid of what the chosen answers score
/// above the rejected ones, and the metrics of the step.
[[nodiscard]] Tensor reward_loss(Tape& tape, const Batch& inputs, const CallModel& call_model);

}  // namespace memcalc
