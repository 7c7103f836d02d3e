// Mixtral's mixture, which MiniMax's repeats: transformers models/mixtral/modeling_mixtral.py, 5.17.0.
#pragma once

#include <cstdint>
#include <utility>

#include "memcalc/models/experts.h"
#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

struct MixtralTopKRouter {
  std::int64_t top_k;
  RouterWeight weight;

  template <typename Spec>
  MixtralTopKRouter(ModuleBuilder& b, const Spec& spec) : top_k(spec.experts.per_token), weight(b, spec) {}

  [[nodiscard]] Routing forward(const Tensor& input) const {
    ActiveWrappers wrappers(weight.wrapped.get());
    const Tensor hidden_states = reshape(input, {-1, input.size(-1)});
    Tensor router_logits = linear(hidden_states, wrappers.read(weight.parameter), {});
    Tensor router_probs = softmax(to_dtype(router_logits, DType::kFloat32));
    if (router_logits.tape().behaviors.mixtral_rebinds_logits) router_logits = std::move(router_probs);
    const Tensor& chosen_from = router_probs.defined() ? router_probs : router_logits;
    auto [router_top_value, router_indices] = topk(chosen_from, top_k);
    router_top_value = divide_in_place(router_top_value, sum_over(router_top_value, -1, true));
    return {std::move(router_logits), std::move(router_top_value), std::move(router_indices)};
  }
};

template <typename Spec>
struct MixtralSparseMoeBlock {
  MixtralTopKRouter gate;
  Experts experts;

  MixtralSparseMoeBlock(ModuleBuilder& b, const Spec& spec)
      : gate(b.scope("gate", [&] { return MixtralTopKRouter(b, spec); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })) {}

  [[nodiscard]] Tensor forward(const Tensor& input) const {
    Tensor hidden_states = view(input, {-1, input.size(-1)});
    const Routing routing = experts.local(gate.forward(hidden_states));
    hidden_states = experts.forward(hidden_states, routing.top_k_index, routing.top_k_weights);
    return reshape(hidden_states, input.shape());
  }
};

}  // namespace memcalc
