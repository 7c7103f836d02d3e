// The state space of Mamba and Jamba, token by token.
// MIRRORS(transformers, "models/mamba/modeling_mamba.py", "5.17.0")
// MIRRORS(transformers, "models/jamba/modeling_jamba.py", "5.17.0")
#pragma once

#include "memcalc/models/hooked_module.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// mamba_selective_scan: [B, channels, tokens]. hidden_states, time_step and gate [B, channels, tokens], rates (A)
/// [channels, state], b and c [B, tokens, state]. `final_state`: null: it is not asked for.
[[nodiscard]] Tensor selective_scan(const Tensor& hidden_states, const Tensor& time_step, const Tensor& rates,
                                    const Tensor& b, const Tensor& c, Tensor skip, const Tensor& gate,
                                    const Tensor& time_bias, Tensor* final_state);

/// forward(x) of a mixer, hooked where something hooks modules. Beside its own parameters, A_log and D, it reads those
/// of its convolution and of dt_proj without a call of these modules.
template <typename Mixer, typename Forward>
[[nodiscard]] Tensor hooked_mixer(const Mixer& mixer, const Tensor& x, const Forward& forward) {
  ModuleHooks* hooks = mixer.A_log.tape().modes.module_hooks;
  if (hooks == nullptr) return forward(x);
  if (!hooks->hooks_used_parameters()) return between_hooks(*hooks, &mixer, {&mixer.A_log, &mixer.D}, x, forward);
  return between_hooks(
      *hooks, &mixer,
      {&mixer.A_log, &mixer.D, &mixer.conv1d.weight, &mixer.conv1d.bias, &mixer.dt_proj.weight, &mixer.dt_proj.bias}, x,
      forward);
}

}  // namespace memcalc
