// The state space of Mamba and Jamba, token by token.
// MIRRORS(transformers, "models/mamba/modeling_mamba.py", "5.17.0")
// MIRRORS(transformers, "models/jamba/modeling_jamba.py", "5.17.0")
#pragma once

#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// mamba_selective_scan: [B, channels, tokens]. hidden_states, time_step and gate [B, channels, tokens], rates (A)
/// [channels, state], b and c [B, tokens, state]. `final_state`: null: it is not asked for.
[[nodiscard]] Tensor selective_scan(const Tensor& hidden_states, const Tensor& time_step, const Tensor& rates,
                                    const Tensor& b, const Tensor& c, Tensor skip, const Tensor& gate,
                                    const Tensor& time_bias, Tensor* final_state);

}  // namespace memcalc
