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

/// global_masked_mean, and what RLOOTrainer writes in its place: totals = reduce(stack([(x * mask).sum(),
/// mask.sum().float()])); (totals[0] / totals[1].clamp(min=1)).item(). Returns totals, which are a variable of its own.
Tensor look_at_masked_mean(const Tensor& x, const Tensor& mask);

/// TRL's nanmin(x).item(), nanmax(x).item() of a vector (trainer/utils.py).
void look_at_extreme(const Tensor& x, Tensor (*extreme)(Arg));

/// The clipped objective with Python's variables: -min(ratio * advantages, clamp(ratio) * advantages).
struct ClippedObjective {
  ClippedObjective(const Tensor& ratio, const Tensor& advantages);
  Tensor clamped, loss1, loss2, loss;
};

/// Which ratios are clipped.
struct Clipping {
  Clipping(const Tensor& ratio, const Tensor& advantages);
  Tensor is_low, is_high, is_clipped;
};

[[nodiscard]] Tensor grpo_loss(Tape& tape, const Training& training, const ScoredCompletions& inputs,
                               const PerToken& policy);

}  // namespace memcalc
