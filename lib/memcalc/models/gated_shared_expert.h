// A mixture of experts beside an MLP that every token takes, by a gate: Qwen2-MoE, Qwen3-Next.
// MIRRORS(transformers, "models/qwen2_moe/modeling_qwen2_moe.py", "5.17.0")
#pragma once

#include "memcalc/models/routers.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

/// Qwen2MoeSparseMoeBlock, Qwen3NextSparseMoeBlock
struct MixtureWithGatedShared {
  SoftmaxRouter gate;
  Experts experts;
  GatedMlp shared_expert;
  Linear shared_expert_gate;

  template <typename Spec>
  MixtureWithGatedShared(ModuleBuilder& b, const Spec& spec)
      : gate(b.scope("gate", [&] { return SoftmaxRouter(b, spec); })),
        experts(b.scope("experts", [&] { return Experts(b, spec, spec.experts, {}); })),
        shared_expert(
            b.scope("shared_expert", [&] { return GatedMlp(b, spec, spec.shared_expert_intermediate_size, false); })),
        shared_expert_gate(b, "shared_expert_gate", spec.hidden_size, 1, false) {}

  [[nodiscard]] Tensor forward(const Tensor& hidden_states) const {
    Tensor shared_expert_output, expert_output;
    const Tensor hidden_states_reshaped = view(hidden_states, {-1, hidden_states.size(-1)});
    shared_expert_output = shared_expert.forward(hidden_states_reshaped);
    const Routing routing = experts.local(gate.forward(hidden_states_reshaped));
    const Locals locals(shared_expert_output);
    expert_output = experts.forward(hidden_states_reshaped, routing.top_k_index, routing.top_k_weights);
    shared_expert_output = sigmoid(shared_expert_gate(hidden_states_reshaped)) * shared_expert_output;
    expert_output = expert_output + shared_expert_output;
    return reshape(expert_output, hidden_states.shape());
  }
};

}  // namespace memcalc
