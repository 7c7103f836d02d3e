// Rewards of a generation's completions, the advantages that GRPOTrainer and RLOOTrainer make of them, and what they
// log of both (trl 1.16, trainer/grpo_trainer.py, _calculate_rewards and _generate_and_score_completions): one function
// on the host rewards. All have a number for each completion of all processes. Covered by tests/measured/jobs_test.py.
// MIRRORS(trl, "trainer/grpo_trainer.py", "1.16.0")
// MIRRORS(trl, "trainer/rloo_trainer.py", "1.16.0")
#pragma once

#include <cstdint>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// Python's variables of _generate_and_score_completions, which live until it returns.
struct Rewards {
  Tensor of_functions;             // [completions, 1] float32
  Tensor cannot_be_scored;         // [completions] bool
  Tensor all;                      // [completions] float32: their weighted sum
  Tensor groups;                   // RLOO: a view of these
  Tensor group_means, deviations;  // float32
  Tensor counts, sums, baselines;  // RLOO: of groups, and of all completions
  Tensor deviates_not;             // bool
  Tensor advantages_of_all;        // [completions] float32
};

/// Of this process's `rows` completions.
[[nodiscard]] Rewards calculate_rewards(Tape& tape, std::int64_t rows);

/// scale_rewards "group". `generations`: completions of a prompt.
[[nodiscard]] Tensor grpo_advantages(Rewards& rewards, std::int64_t generations);
/// Against the mean of a prompt's other completions. `kl`: a penalty of each completion, if any.
[[nodiscard]] Tensor rloo_advantages(Rewards& rewards, const Tensor& kl, std::int64_t generations);

/// Means and deviations, which are logged.
void look_at_rewards(Rewards& rewards);

}  // namespace memcalc
