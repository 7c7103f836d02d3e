// The loss of GRPOTrainer (trl 1.16, trainer/grpo_trainer.py, _compute_loss), and what RLOOTrainer's shares with it.
// Covered by tests/measured/jobs_test.py.
// MIRRORS(trl, "trainer/grpo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/rloo_trainer.py", "1.16.0")
#pragma once

#include "memcalc/spec/training_spec.h"
#include "memcalc/symbolic/tape.h"
#include "memcalc/train/trl/grpo.h"

namespace memcalc {

/// What _get_per_token_logps_and_entropies returns of some completions: [rows, completion] each, and of mixtures of
/// experts the auxiliary loss.
struct PerToken {
  Tensor log_probs, entropies, aux_loss;
};

/// totals = reduce(stack([(x * mask).sum(), mask.sum().float()])); (totals[0] / totals[1].clamp(min=1)).item()
void look_at_masked_mean(const Tensor& x, const Tensor& mask);

/// The clipped objective: -min(ratio * advantages, clamp(ratio) * advantages).
[[nodiscard]] Tensor clipped(const Tensor& ratio, const Tensor& advantages);

[[nodiscard]] Tensor grpo_loss(Tape& tape, const Training& training, const ScoredCompletions& inputs,
                               const PerToken& policy);

}  // namespace memcalc
