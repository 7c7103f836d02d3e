// The auxiliary loss of mixtures of experts, which TRL's trainers add to theirs: every layer's router logits are kept
// until it is computed. From the sources, not validated on a card. Covered by tests/unit/load_balancing_loss_test.cc.
// MIRRORS(transformers, "models/mixtral/modeling_mixtral.py", "5.17.0")
// MIRRORS(transformers, "utils/output_capturing.py", "5.17.0")
#pragma once

#include <cstdint>
#include <span>

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// The forward hook of OutputRecorder: keeps a router's logits where Modes::router_logits asks for them. A layer that
/// backward runs again has none.
void record_router_logits(const Tensor& router_logits);

/// load_balancing_loss_func: of the layers' logits [tokens, experts]. `attention_mask` undefined: of rows without
/// padding, whose tokens all count.
[[nodiscard]] Tensor load_balancing_loss(std::span<const Tensor> gate_logits, std::int64_t top_k,
                                         const Tensor& attention_mask);

}  // namespace memcalc
