// Layers of decoders that mix attention with states (Mamba, gated delta nets).
#pragma once

#include <concepts>
#include <utility>

#include "memcalc/models/attention.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/tensor.h"

namespace memcalc {

/// The forward of a layer with a norm before each half, the first of which is of a kind of its own (hybrids of attention
/// and states). `mix` makes an AttentionResult of what is normalized; mixers that are no attention have no weights.
template <typename Norm, std::invocable<const Tensor&> Mix, typename Mlp>
[[nodiscard]] Tensor forward_of_hybrid(const Tensor& input, const Norm& before_mixer, const Mix& mix,
                                       const Norm& before_mlp, const Mlp& mlp) {
  Tensor residual = input;
  Tensor hidden_states = before_mixer(input);
  AttentionResult mixed = mix(hidden_states);
  hidden_states = std::move(mixed.output);
  hidden_states = residual + hidden_states;
  residual = hidden_states;
  hidden_states = before_mlp(hidden_states);
  hidden_states = mlp.forward(hidden_states);
  hidden_states = residual + hidden_states;
  drop(residual, mixed.weights);
  return hidden_states;
}

}  // namespace memcalc
