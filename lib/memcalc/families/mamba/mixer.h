// The mixer of Mamba and Jamba, as transformers' own code computes it where mamba-ssm and causal-conv1d are not
// installed: the state space token by token, in Python.
// MIRRORS(transformers, "models/mamba/modeling_mamba.py", "5.17.0")
// MIRRORS(transformers, "models/jamba/modeling_jamba.py", "5.17.0")
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "memcalc/families/mamba/selective_scan.h"
#include "memcalc/models/causal_convolution.h"
#include "memcalc/models/hooked_module.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/linear.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

struct MambaMixerSizes {
  std::int64_t hidden_size, width, state_size, conv_kernel, time_step_rank;
  bool conv_bias, projection_bias;
  std::string activation;
};

/// MambaMixer, JambaMambaMixer
struct MambaMixer {
  std::int64_t state_size, time_step_rank;
  std::string activation;
  CausalConvolution conv1d;
  Linear in_proj, x_proj, dt_proj;
  Tensor A_log, D;  // NOLINT(readability-identifier-naming): the module's names
  Linear out_proj;

  MambaMixer(ModuleBuilder& b, const MambaMixerSizes& sizes)
      : state_size(sizes.state_size),
        time_step_rank(sizes.time_step_rank),
        activation(sizes.activation),
        conv1d(b, "conv1d", sizes.width, sizes.conv_kernel, sizes.conv_bias),
        in_proj(b, "in_proj", sizes.hidden_size, 2 * sizes.width, sizes.projection_bias),
        x_proj(b, "x_proj", sizes.width, sizes.time_step_rank + 2 * sizes.state_size, false),
        dt_proj(b, "dt_proj", sizes.time_step_rank, sizes.width),
        A_log(b.parameter_before("A_log", {sizes.width, sizes.state_size}, "conv1d.weight")),
        D(b.parameter_before("D", {sizes.width}, "conv1d.weight")),
        out_proj(b, "out_proj", sizes.width, sizes.hidden_size, sizes.projection_bias) {}

  /// forward(x), hooked where something hooks modules. Beside its own parameters, A_log and D, a mixer reads those of
  /// its convolution and of dt_proj without a call of these modules. between(): what it does before it splits the
  /// projection. normalize(time_step, B, C): before it uses them.
  template <typename Between, typename Normalize>
  [[nodiscard]] Tensor mixed(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache,
                             const Between& between, const Normalize& normalize) const {
    const auto forward = [&](const Tensor& input) { return mix(input, attention_mask, cache, between, normalize); };
    ModuleHooks* hooks = A_log.tape().modes.module_hooks;
    if (hooks == nullptr) return forward(x);
    if (!hooks->hooks_used_parameters()) return between_hooks(*hooks, this, {&A_log, &D}, x, forward);
    return between_hooks(*hooks, this, {&A_log, &D, &conv1d.weight, &conv1d.bias, &dt_proj.weight, &dt_proj.bias}, x,
                         forward);
  }

 private:
  template <typename Between, typename Normalize>
  [[nodiscard]] Tensor mix(const Tensor& x, const Tensor& attention_mask, KeyValueCache* cache, const Between& between,
                           const Normalize& normalize) const {
    const DType dtype = x.dtype();
    LinearStates states;
    Tensor hidden_states, projected_states, A, hidden_states_B_C, gate, time_step, B, C, time_proj_bias, final_state,
        scan_output;
    const Locals locals(hidden_states, projected_states, A, hidden_states_B_C, gate, time_step, B, C, time_proj_bias,
                        final_state, scan_output);
    hidden_states = without_padding(x, attention_mask);
    projected_states = transpose(in_proj(hidden_states), 1, 2);
    A = negate(exponential(to_dtype(A_log, DType::kFloat32)));
    between();
    {
      std::vector<Tensor> halves = split(projected_states, 1, 2);
      hidden_states_B_C = std::move(halves[0]);
      gate = std::move(halves[1]);
    }
    hidden_states_B_C = conv1d(hidden_states_B_C, activation, cache != nullptr ? &states : nullptr);
    hidden_states_B_C = without_padding(transpose(hidden_states_B_C, 1, 2), attention_mask);
    {
      const std::array<std::int64_t, 3> sizes = {time_step_rank, state_size, state_size};
      std::vector<Tensor> parts = split_with_sizes(x_proj(hidden_states_B_C), 2, sizes);
      time_step = std::move(parts[0]);
      B = std::move(parts[1]);
      C = std::move(parts[2]);
    }
    normalize(time_step, B, C);
    time_step = matmul(dt_proj.weight, transpose(time_step, 1, 2));
    time_proj_bias = to_dtype(dt_proj.bias, DType::kFloat32);
    scan_output = selective_scan(transpose(hidden_states_B_C, 1, 2), time_step, A, B, C, to_dtype(D, DType::kFloat32),
                                 gate, time_proj_bias, cache != nullptr ? &final_state : nullptr);
    if (cache != nullptr) {
      states.update_recurrent_state(final_state);
      states.keep(*cache);
    }
    return out_proj(to_dtype(transpose(scan_output, 1, 2), dtype));
  }
};

}  // namespace memcalc
