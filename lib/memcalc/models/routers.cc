#include "memcalc/models/routers.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

std::shared_ptr<WrappedModule> remember_router(ModuleBuilder& b, std::size_t parameter_count) {
  return b.fine_tuning.lora ? b.remember_experts(parameter_count) : nullptr;
}

Routing SoftmaxRouter::forward(const Tensor& input) const {
  ActiveWrappers wrappers(weight.wrapped.get());
  const Tensor hidden_states = reshape(input, {-1, input.size(-1)});
  Tensor router_logits = linear(hidden_states, wrappers.read(weight.parameter), {});
  Tensor router_probs = softmax(router_logits, DType::kFloat32);
  auto [router_top_value, router_indices] = topk(router_probs, top_k);
  if (norm_topk_prob) {
    router_top_value = divide_in_place(router_top_value, sum_over(router_top_value, -1, true));
  }
  if (!router_logits.tape().behaviors.qwen_routes_in_float32) {
    router_top_value = to_dtype(router_top_value, router_logits.dtype());
  }
  return {std::move(router_logits), std::move(router_top_value), std::move(router_indices)};
}

Routing SigmoidRouter::forward(const Tensor& input, const Tensor& e_score_correction_bias) const {
  ActiveWrappers wrappers(weight.wrapped.get());
  Tensor hidden_states, routing_weights, scores_for_choice, scores_of_chosen;
  const Locals locals(hidden_states, routing_weights, scores_for_choice, scores_of_chosen);
  hidden_states = reshape(input, {-1, input.size(-1)});
  const Tensor matrix = wrappers.read(weight.parameter);
  Tensor router_logits = linear(to_dtype(hidden_states, matrix.dtype()), matrix, {});
  routing_weights = sigmoid(to_dtype(router_logits, DType::kFloat32));
  scores_for_choice = routing_weights + e_score_correction_bias;
  Selection chosen = topk(scores_for_choice, top_k, false);
  scores_of_chosen = std::move(chosen.values);
  Tensor top_k_weights = gather(routing_weights, chosen.indices);
  top_k_weights = divide_in_place(top_k_weights, sum_over(top_k_weights, -1, true));
  return {std::move(router_logits), std::move(top_k_weights), std::move(chosen.indices)};
}

Routing GroupedSoftmaxRouter::forward(const Tensor& input) const {
  ActiveWrappers wrappers(weight.wrapped.get());
  Tensor hidden_states, scores, group_scores, group_idx, group_mask, score_mask;
  const Locals locals(hidden_states, scores, group_scores, group_idx, group_mask, score_mask);
  hidden_states = view(input, {-1, input.size(-1)});
  Tensor router_logits = float32_linear(hidden_states, weight.parameter, wrappers);
  scores = softmax(router_logits, DType::kFloat32);
  if (num_group > 0) {  // "group_limited_greedy"
    group_scores = max_along(by_group(scores, num_group), 2, false).values;
    limit_to_groups(group_scores, topk_group, scores.size(1), group_idx, group_mask, score_mask);
    scores = fill_other_groups(scores, score_mask);
  }
  auto [topk_weights, topk_indices] = topk(scores, top_k, false);
  topk_weights = multiply_scalar(topk_weights);  // * routed_scaling_factor
  return {std::move(router_logits), std::move(topk_weights), std::move(topk_indices)};
}

Routing choose_in_groups(const GroupedChoice& choice, Tensor router_logits, const Tensor& scores, const Tensor& judged,
                         GroupedChoiceVariables& own) {
  own.group_scores = topk(by_group(judged, choice.num_group), 2).values;
  own.group_scores = sum_over(own.group_scores, -1, false);
  limit_to_groups(own.group_scores, choice.topk_group, scores.size(1), own.group_idx, own.group_mask, own.score_mask);
  own.scores_for_choice = fill_other_groups(judged, own.score_mask);
  Tensor topk_indices = topk(own.scores_for_choice, choice.top_k, false).indices;
  Tensor topk_weights = gather(scores, topk_indices);
  if (choice.norm_topk_prob) {
    own.denominator = sum_over(topk_weights, -1, true);
    own.denominator = add_scalar(own.denominator);
    topk_weights = divide_in_place(topk_weights, own.denominator);
  }
  topk_weights = multiply_scalar(topk_weights);  // * routed_scaling_factor
  return {std::move(router_logits), std::move(topk_weights), std::move(topk_indices)};
}

Routing GroupedSigmoidRouter::forward(const Tensor& input) const {
  ActiveWrappers wrappers(weight.wrapped.get());
  Tensor hidden_states, scores;
  GroupedChoiceVariables own;
  const Locals locals(hidden_states, scores, own.scores_for_choice, own.group_scores, own.group_idx, own.group_mask,
                      own.score_mask, own.denominator);
  hidden_states = view(input, {-1, input.size(-1)});
  Tensor router_logits = float32_linear(hidden_states, weight.parameter, wrappers);
  scores = sigmoid(router_logits);
  own.scores_for_choice = scores + e_score_correction_bias;
  return choose_in_groups(choice, std::move(router_logits), scores, own.scores_for_choice, own);
}

Tensor float32_linear(const Tensor& hidden_states, const Tensor& weight, ActiveWrappers& wrappers) {
  Tensor operand = to_dtype(hidden_states, DType::kFloat32);
  Tensor matrix = to_dtype(wrappers.read(weight), DType::kFloat32);
  Tensor result = linear(operand, matrix, {});
  drop(operand, matrix);
  return result;
}

Tensor by_group(const Tensor& scores, std::int64_t groups) {
  return view(scores, {-1, groups, scores.size(-1) / groups});
}

void limit_to_groups(const Tensor& group_scores, std::int64_t topk_group, std::int64_t experts, Tensor& group_idx,
                     Tensor& group_mask, Tensor& score_mask) {
  const std::int64_t groups = group_scores.size(1);
  group_idx = topk(group_scores, topk_group, false).indices;
  group_mask = no_grad::zeros_like(group_scores);  // scatter_ in place
  score_mask = reshape(expand(unsqueeze(group_mask, -1), {-1, groups, experts / groups}), {-1, experts});
}

Tensor fill_other_groups(const Tensor& scores, const Tensor& score_mask) {
  Tensor chosen = to_dtype(score_mask, DType::kBool);
  const Tensor others = pointwise(aten::kBitwiseNot, {&chosen}, 1);
  chosen.reset();
  return masked_fill(scores, others);
}

}  // namespace memcalc
