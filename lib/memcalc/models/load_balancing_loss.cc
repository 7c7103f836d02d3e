#include "memcalc/models/load_balancing_loss.h"

#include <utility>
#include <vector>

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// torch.bincount(x, minlength).float(): the host looks for the least and the greatest value first.
Tensor counted(const Tensor& x, std::int64_t bins) {
  no_grad::min(x).reset();
  no_grad::max(x).reset();
  return no_grad::to(no_grad::zeros(x.tape(), {bins}, DType::kInt64), DType::kFloat32);
}

/// zeros(experts).scatter_add_(0, x, flat_mask.repeat_interleave(top_k))
Tensor weighted_counts(const Tensor& x, const Tensor& flat_mask, std::int64_t top_k, std::int64_t bins) {
  const Tensor zeros = no_grad::zeros(x.tape(), {bins}, DType::kFloat32);
  const Tensor weights = no_grad::repeat_interleave(flat_mask, top_k);
  return scatter_in_place(zeros, x, weights, Scattered::kAdds);
}

/// (probabilities * flat_mask.unsqueeze(-1)).sum(dim=0)
Tensor masked_sum(const Tensor& probabilities, const Tensor& flat_mask) {
  const Tensor product = multiply(probabilities, no_grad::unsqueeze(flat_mask, 1));
  return sum(product, 0b01, false);
}

}  // namespace

void record_router_logits(const Tensor& router_logits) {
  std::vector<Tensor>* recorded = router_logits.tape().modes.router_logits;
  if (recorded != nullptr && !router_logits.tape().moment.recomputing) recorded->push_back(router_logits);
}

Tensor load_balancing_loss(std::span<const Tensor> gate_logits, std::int64_t top_k, const Tensor& attention_mask) {
  Tape& tape = gate_logits.front().tape();
  const std::int64_t experts = gate_logits.front().size(-1);
  Tensor tokens_per_expert_sum = no_grad::zeros(tape, {experts}, DType::kFloat32);
  Tensor router_prob_sum = no_grad::zeros(tape, {experts}, DType::kFloat32);
  const bool masks = attention_mask.defined();
  Tensor flat_mask, total_rows, routing_weights, top_values, selected_experts;
  if (masks) flat_mask = no_grad::to(no_grad::view(attention_mask, {attention_mask.elements()}), DType::kFloat32);
  for (const Tensor& layer_gate : gate_logits) {
    routing_weights = softmax(layer_gate);
    {
      Selection selection = topk(routing_weights, top_k);
      top_values = std::move(selection.values);
      selected_experts = std::move(selection.indices);
    }
    const Tensor chosen = no_grad::view(selected_experts, {selected_experts.elements()});
    const Tensor probabilities = to_dtype(routing_weights, DType::kFloat32);
    if (masks) {
      tokens_per_expert_sum = no_grad::add(tokens_per_expert_sum, weighted_counts(chosen, flat_mask, top_k, experts));
      router_prob_sum = add(router_prob_sum, masked_sum(probabilities, flat_mask));
      const Tensor rows = sum_all(flat_mask);
      total_rows = total_rows.defined() ? no_grad::add(total_rows, rows) : no_grad::add(rows);
    } else {
      tokens_per_expert_sum = no_grad::add(tokens_per_expert_sum, counted(chosen, experts));
      router_prob_sum = add(router_prob_sum, sum(probabilities, 0b01, false));
    }
  }
  const Tensor tokens_per_expert =
      masks ? no_grad::divide(tokens_per_expert_sum, total_rows) : no_grad::divide(tokens_per_expert_sum);
  const Tensor router_prob_per_expert = masks ? divide(router_prob_sum, total_rows) : divide_scalar(router_prob_sum);
  Tensor overall_loss;
  {
    const Tensor product = multiply(tokens_per_expert, unsqueeze(router_prob_per_expert, 0));
    overall_loss = sum(product, 0b11, false);
  }
  return multiply_scalar(overall_loss);
}

}  // namespace memcalc
