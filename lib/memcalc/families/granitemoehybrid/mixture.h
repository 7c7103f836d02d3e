// Granite's mixture of experts: transformers models/granitemoe, and models/granitemoehybrid, which repeats it.
// MIRRORS(transformers, "models/granitemoe/modeling_granitemoe.py", "5.17.0")
#pragma once

#include <cstdint>
#include <utility>

#include "memcalc/models/experts.h"
#include "memcalc/models/routers.h"
#include "memcalc/spec/decoder_spec.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

/// GraniteMoeTopKRouter, GraniteMoeHybridTopKRouter
struct GraniteRouter {
  std::int64_t top_k;
  RouterWeight weight;

  GraniteRouter(ModuleBuilder& b, const RotaryDecoderSpec& spec, const ExpertsSpec& sizes)
      : top_k(sizes.per_token), weight(b, sizes.count, spec.hidden_size) {}

  [[nodiscard]] Routing forward(const Tensor& hidden_states) const {
    ActiveWrappers wrappers(weight.wrapped.get());
    Tensor router_logits = to_dtype(linear(hidden_states, wrappers.read(weight.parameter), {}), DType::kFloat32);
    Selection chosen = topk(router_logits, top_k);
    Tensor top_k_weights = to_dtype(softmax(chosen.values), hidden_states.dtype());
    chosen.values.reset();
    return {std::move(router_logits), std::move(top_k_weights), std::move(chosen.indices)};
  }
};

/// GraniteMoeMoE, GraniteMoeHybridMoE
struct GraniteMixture {
  GraniteRouter router;
  Experts experts;

  GraniteMixture(ModuleBuilder& b, const RotaryDecoderSpec& spec, const ExpertsSpec& sizes)
      : router(b.scope("router", [&] { return GraniteRouter(b, spec, sizes); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, sizes, {}); })) {}

  [[nodiscard]] Tensor forward(const Tensor& layer_input) const {
    const Tensor hidden_states = reshape(layer_input, {-1, layer_input.size(-1)});
    Routing routing = experts.local(router.forward(hidden_states));
    const Tensor layer_output = experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights);
    drop(routing.top_k_index, routing.top_k_weights, routing.router_logits);
    return view(layer_output, layer_input.shape());
  }
};

}  // namespace memcalc
