#include "memcalc/models/expert_loop.h"

#include <algorithm>
#include <utility>

#include "memcalc/models/token_shares.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/host_values.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

ExpertLoop::ExpertLoop(ModuleBuilder& b, const RotaryDecoderSpec& spec, const ExpertsSpec& sizes, bool norm_topk_prob,
                       const Names& names)
    : gate(b, "gate", spec.hidden_size, sizes.count, false),
      top_k(sizes.per_token),
      layer(0),
      norm_topk_prob(norm_topk_prob),
      act_fn(spec.hidden_act) {
  for (std::int64_t i = 0; i < sizes.count; ++i) {
    experts.push_back(b.scope("experts." + std::to_string(i), [&] {
      Expert expert;
      for (std::size_t each = 0; each < names.order.size(); ++each) {
        const bool down = names.order[each] == kDown;
        const std::int64_t in = down ? sizes.intermediate_size : spec.hidden_size;
        const std::int64_t out = down ? spec.hidden_size : sizes.intermediate_size;
        expert.matrices[names.order[each]] = Linear(b, names.of_order[each], in, out, false);
      }
      return expert;
    }));
  }
  const std::int64_t of_expert = checked_multiply(3 * sizes.intermediate_size, spec.hidden_size);
  const std::int64_t inactive = checked_multiply(of_expert, sizes.count - sizes.per_token);
  if (inactive > 0) layer = b.inactive_parameters / inactive;
  b.inactive_parameters += inactive;
}

Tensor ExpertLoop::run(const Expert& expert, const Tensor& x) const {
  Tensor activated = activation_function(act_fn, expert.matrices[kGate](x));
  Tensor product = std::move(activated) * expert.matrices[kUp](x);
  product = expert.matrices[kDown](product);
  return product;
}

Tensor ExpertLoop::forward(const Tensor& input, Tensor& router_logits) const {
  Tape& tape = input.tape();
  const std::int64_t width = input.size(-1), count = static_cast<std::int64_t>(experts.size());
  Tensor hidden_states = view(input, {-1, width});
  const std::int64_t tokens = hidden_states.size(0);
  router_logits = gate(hidden_states);
  Tensor selected_experts, routing_weights = softmax(router_logits, DType::kFloat32);
  {
    auto [values, indices] = topk(routing_weights, top_k);
    routing_weights = std::move(values);
    selected_experts = std::move(indices);
  }
  if (norm_topk_prob) routing_weights = divide_in_place(routing_weights, sum_over(routing_weights, -1, true));
  routing_weights = to_dtype(routing_weights, hidden_states.dtype());
  Tensor final_hidden_states = no_grad::zeros(tape, {tokens, width}, hidden_states.dtype());
  // one_hot(selected_experts).permute(2, 1, 0)
  Tensor expert_mask = no_grad::zeros(tape, {tokens, top_k, count}, DType::kInt64);
  const std::vector<std::int64_t> tokens_of = tokens_of_experts(tokens, top_k, count, layer);
  Tensor expert_hit = nonzero(no_grad::greater(no_grad::sum(no_grad::view(expert_mask, {tokens * top_k, count}), 0)),
                              count - std::count(tokens_of.begin(), tokens_of.end(), 0));
  Tensor places, current_state, current_hidden_states;  // places: idx and top_x, which are views of it
  std::int64_t hit = 0;                                 // of expert_hit
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t chosen = tokens_of[static_cast<std::size_t>(i)];
    if (chosen == 0) continue;  // not hit
    read_on_host(tape);
    {
      const Tensor expert_idx = no_grad::select(no_grad::slice(expert_hit, 0, hit++, 1), 1);
      const Tensor row = no_grad::index(no_grad::view(expert_mask, {count, top_k, tokens}), {{0, expert_idx}});
      places = nonzero(no_grad::view(row, {top_k, tokens}), chosen);
    }
    const Tensor idx = no_grad::select(no_grad::slice(places, 1, 0, 1), 1);
    const Tensor top_x = no_grad::select(no_grad::slice(places, 1, 1, 1), 1);
    const std::pair<int, Tensor> of_token[] = {{1, top_x}}, of_choice[] = {{0, top_x}, {1, idx}};
    current_state = view(index(unsqueeze(hidden_states, 0), of_token), {chosen, width});
    {
      Tensor output = run(experts[static_cast<std::size_t>(i)], current_state);
      current_hidden_states = std::move(output) * index(unsqueeze(routing_weights, -1), of_choice);
    }
    const Tensor added = to_dtype(current_hidden_states, hidden_states.dtype());
    final_hidden_states = index_add_in_place(final_hidden_states, top_x, added);
  }
  Tensor result = reshape(final_hidden_states, input.shape());
  drop(hidden_states, routing_weights, selected_experts, final_hidden_states);
  drop(expert_mask, expert_hit, places, current_state, current_hidden_states);
  return result;
}

}  // namespace memcalc
