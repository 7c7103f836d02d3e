// torchao/optim/cpu_offload.py, CPUOffloadOptimizer: large parameters have a pinned copy, a pinned gradient and an
// optimizer of their own in host memory; small ones stay with an optimizer on the card.
// MIRRORS(torchao, "optim/cpu_offload.py", "0.18.0")
#pragma once

#include <cstdint>
#include <vector>

#include "memcalc/symbolic/host_copies.h"
#include "memcalc/train/optimizers/rule.h"

namespace memcalc {

/// minimal_size: tensors with fewer elements are not worth a transfer.
inline constexpr std::int64_t kSmallestOffloaded = 4096;

[[nodiscard]] inline bool is_offloaded(std::int64_t elements) { return elements >= kSmallestOffloaded; }

/// The optimizer that runs on the card: torchao takes fused AdamW where nothing else is said.
[[nodiscard]] inline Optimizer optimizer_on_card(const Training& training) {
  return training.offload_optimizer ? Optimizer::kAdamWFused : training.optimizer;
}

/// What stays with the optimizer on the card.
[[nodiscard]] std::vector<ParameterGroup> without_offloaded(const std::vector<ParameterGroup>& groups);

/// offload_gradients: a large parameter's gradient dies as soon as it is complete and copied.
void drop_offloaded_gradients(const std::vector<ParameterGroup>& groups);

/// What the host holds for the parameters that are trained.
[[nodiscard]] HostOptimizer host_optimizer_of(const std::vector<Parameter>& parameters);

}  // namespace memcalc
