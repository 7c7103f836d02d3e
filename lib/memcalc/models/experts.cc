// MIRRORS(transformers, "distributed/tensor_parallel.py", "5.17.0")
#include "memcalc/models/experts.h"

#include "memcalc/models/load_balancing_loss.h"
#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/all_reduce.h"
#include "memcalc/symbolic/ops/grouped_mm.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/put.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scan.h"
#include "memcalc/symbolic/ops/view.h"

namespace memcalc {

namespace {

/// _grouped_linear
Tensor grouped_linear(const Tensor& input, const Tensor& weight, const Tensor& offsets, const Tensor& bias,
                      bool is_transposed) {
  const Tensor operand = to_dtype(input, weight.dtype());
  Tensor out = grouped_mm(operand, is_transposed ? weight : transpose(weight, 1, 2), offsets);
  if (bias.defined())
    out = input.tape().behaviors.experts == ExpertForm::kArgsort ? out + bias : add_in_place(out, bias);
  return out;
}

}  // namespace

Tensor default_apply_gate(const Tensor& gate_up, std::string_view act_fn) {
  std::vector<Tensor> parts = split(gate_up, -1, 2);
  Tensor activated = activation_function(act_fn, parts[0]);
  Tensor gated = std::move(activated) * parts[1];
  drop(parts[0], parts[1]);
  return gated;
}

Experts::Experts(ModuleBuilder& b, const RotaryDecoderSpec& spec, const ExpertsSpec& experts, const Options& options)
    : num_experts(experts.count), act_fn(spec.hidden_act), options(options) {
  const auto weight = [&](std::string_view name, std::int64_t in, std::int64_t out) {
    const Tensor tensor =
        b.parameter(name, options.is_transposed ? Shape{num_experts, in, out} : Shape{num_experts, out, in});
    b.inactive_parameters += tensor.elements() / num_experts * (num_experts - experts.per_token);
    return tensor;
  };
  const auto bias = [&](std::string_view name, std::int64_t out) {
    const Tensor tensor = b.parameter(name, {num_experts, out}, false);
    b.inactive_parameters += out * (num_experts - experts.per_token);
    return tensor;
  };
  const std::int64_t parts = options.has_gate ? 2 : 1;
  const std::int64_t gate_up = checked_multiply(parts, experts.intermediate_size);
  const std::int64_t width = options.width != 0 ? options.width : spec.hidden_size;
  const std::string up = options.has_gate ? "gate_up_proj" : "up_proj";
  gate_up_proj = weight(up, width, gate_up);
  if (options.has_bias) gate_up_proj_bias = bias(up + "_bias", gate_up);
  down_proj = weight("down_proj", experts.intermediate_size, width);
  if (options.has_bias) down_proj_bias = bias("down_proj_bias", width);
  packed = b.remember_experts(options.has_bias ? 4 : 2);
  if (!packed) return;
  packed->is_transposed = options.is_transposed;
  packed->has_biases = options.has_bias;
  packed->gate_up_proj = {.experts = num_experts, .out_features = gate_up, .in_features = width, .parts = parts};
  packed->down_proj = {
      .experts = num_experts, .out_features = width, .in_features = experts.intermediate_size, .parts = 1};
}

Tensor Experts::activated(const Tensor& projected) const {
  if (!options.has_gate) return activation_function(act_fn, projected);
  return (options.apply_gate != nullptr ? options.apply_gate : default_apply_gate)(projected, act_fn);
}

Tensor Experts::forward_batched(const Tensor& hidden_states, const Tensor& top_k_index, const Tensor& top_k_weights,
                                ActiveWrappers& wrappers) const {
  Tensor selected_hidden_states, sample_weights, expert_ids, selected_weights, selected_biases, proj_out, weighted_out;
  Tensor final_hidden_states;
  const Locals locals(selected_hidden_states, sample_weights, expert_ids, selected_weights, selected_biases, proj_out,
                      weighted_out, final_hidden_states);
  const std::int64_t num_top_k = top_k_index.size(-1);
  const std::int64_t chosen = hidden_states.size(0) * num_top_k;
  const auto linear_of = [&](const Tensor& input, const Tensor& biases) {  // _batched_linear
    Tensor out = options.is_transposed ? squeeze(matmul(unsqueeze(input, 1), selected_weights), 1)
                                       : squeeze(matmul(selected_weights, unsqueeze(input, -1)), 2);
    return biases.defined() ? add_in_place(out, biases) : out;
  };
  const auto rows_of = [&](const Tensor& table) {
    Shape shape = table.shape();
    shape[0] = chosen;
    return view(index_rows(table, expert_ids), shape);
  };
  selected_hidden_states = no_grad::repeat_interleave(hidden_states, num_top_k);
  sample_weights = reshape(top_k_weights, {-1});
  expert_ids = reshape(top_k_index, {-1});
  expert_ids = pointwise(aten::kClamp, {&expert_ids}, 1);
  selected_weights = rows_of(wrappers.read(gate_up_proj));
  if (options.has_bias) selected_biases = rows_of(gate_up_proj_bias);
  proj_out = linear_of(selected_hidden_states, selected_biases);
  proj_out = activated(proj_out);
  selected_weights = rows_of(wrappers.read(down_proj));
  if (options.has_bias) selected_biases = rows_of(down_proj_bias);
  proj_out = linear_of(proj_out, selected_biases);
  weighted_out = proj_out * unsqueeze(sample_weights, -1);
  final_hidden_states =
      sum_over(view(weighted_out, {hidden_states.size(0), num_top_k, hidden_states.size(1)}), 1, false);
  return to_dtype(final_hidden_states, hidden_states.dtype());
}

// transformers/distributed/tensor_parallel.py, EpRouterParallel.transform_output_post_forward. Of a router's hooks that
// of OutputRecorder comes first.
Routing Experts::local(Routing routing) const {
  record_router_logits(routing.router_logits);
  if (ranks() == 1) return routing;
  const Tensor output[] = {routing.top_k_weights, routing.top_k_index};  // the hook's argument, held until it returns
  Tensor &router_scores = routing.top_k_weights, &router_indices = routing.top_k_index;
  router_scores = all_reduce_backward(router_scores, ranks());
  const auto mask_of = [](const Operator& op, const Tensor& x) { return pointwise(op, {&x}, 1, DType::kBool); };
  const auto filled_where = [&](const Operator& op) {
    return masked_fill(router_indices, mask_of(op, router_indices));
  };
  const Tensor non_local_mask = mask_of(aten::kNe, pointwise(aten::kFloorDivide, {&router_indices}, 1));
  router_scores = masked_fill(router_scores, non_local_mask);
  router_indices = masked_fill(router_indices, non_local_mask);
  if (gate_up_proj.size(0) > 1) {
    router_indices = pointwise(aten::kFmod, {&router_indices}, 1);
  } else {
    router_indices = filled_where(aten::kGt);
    router_indices = filled_where(aten::kLt);
  }
  router_indices = filled_where(aten::kEq);
  return routing;
}

// MoeExpertsParallel: every rank has all tokens; what its experts make of theirs is summed.
Tensor Experts::forward(const Tensor& hidden_states, const Tensor& top_k_index, const Tensor& top_k_weights) const {
  const bool decodes = hidden_states.tape().moment.phase == Phase::kDecode;
  if (packed && packed->gate_up_proj.kind == Quantization::kFp8) {
    return decodes ? forward_batched_fp8(hidden_states, top_k_index, top_k_weights)
                   : forward_grouped_fp8(hidden_states, top_k_index, top_k_weights);
  }
  ActiveWrappers wrappers(packed.get());
  if (decodes) return forward_batched(hidden_states, top_k_index, top_k_weights, wrappers);
  if (ranks() == 1) return forward_grouped(hidden_states, top_k_index, top_k_weights, wrappers);
  const Tensor whole = all_reduce_backward(hidden_states, ranks());
  return all_reduce_forward(forward_grouped(whole, top_k_index, top_k_weights, wrappers), ranks());
}

namespace {

bool by_argsort(const Tape& tape) { return tape.behaviors.experts == ExpertForm::kArgsort; }

/// arange(num_tokens).unsqueeze(1).expand(-1, num_top_k).reshape(-1)
Tensor token_indices(std::int64_t tokens, const Tensor& top_k_index) {
  const Tensor range = no_grad::arange(top_k_index.tape(), tokens);
  return no_grad::view(no_grad::clone(no_grad::expand(no_grad::view(range, {tokens, 1}), top_k_index.shape())), {-1});
}

}  // namespace

SortedTokens::SortedTokens(const Tensor& hidden_states, const Tensor& top_k_index, const Tensor& top_k_weights,
                           std::int64_t num_experts)
    : token_idx(by_argsort(hidden_states.tape()) ? token_indices(hidden_states.size(0), top_k_index) : Tensor()),
      sample_weights(reshape(top_k_weights, {-1})),
      expert_ids(reshape(top_k_index, {-1})),
      sorted(sort(expert_ids)) {
  if (token_idx.defined()) {  // argsort: its values die
    expert_ids_g.reset();
    inv_perm = inverse_permutation(perm);
    expert_ids_g = index_rows(expert_ids, perm);
    sample_weights_g = index_rows(sample_weights, perm);
    selected_hidden_states_g = index_rows(hidden_states, index_rows(token_idx, perm));
  } else {
    selected_hidden_states_g = index_rows(hidden_states, pointwise(aten::kFloorDivide, {&perm}, 1));
    sample_weights_g = index_rows(sample_weights, perm);
  }
  histc_input = to_dtype(expert_ids_g, DType::kInt32);
  tokens_per_expert = count_values(histc_input, num_experts);
  offsets = cumulative_sum(tokens_per_expert, 0, DType::kInt32);
  const ExpertForm form = hidden_states.tape().behaviors.experts;
  if (form != ExpertForm::kMaskedInPlace && form != ExpertForm::kMaskedByCopies) return;
  sentinel_mask = unsqueeze(pointwise(aten::kGe, {&expert_ids_g}, 1, DType::kBool), -1);
  clamp_ids_in_place(expert_ids_g);
}

Tensor Experts::forward_grouped(const Tensor& hidden_states, const Tensor& top_k_index, const Tensor& top_k_weights,
                                ActiveWrappers& wrappers) const {
  SortedTokens tokens(hidden_states, top_k_index, top_k_weights, gate_up_proj.size(0));
  auto& [token_idx, sample_weights, expert_ids, sorted, expert_ids_g, perm, inv_perm, selected_hidden_states_g,
         sample_weights_g, histc_input, tokens_per_expert, offsets, sentinel_mask] = tokens;
  Tensor selected_weights, selected_biases, proj_out, weighted_out, final_hidden_states;
  const Locals locals(token_idx, sample_weights, expert_ids, expert_ids_g, perm, selected_hidden_states_g,
                      sample_weights_g, histc_input, tokens_per_expert, offsets, sentinel_mask, selected_weights,
                      selected_biases, proj_out, weighted_out, inv_perm, final_hidden_states);
  const std::int64_t num_top_k = top_k_index.size(-1);
  const ExpertForm form = hidden_states.tape().behaviors.experts;
  const auto copy_masked = [&, &mask = sentinel_mask](const Tensor& x) {
    return form == ExpertForm::kMaskedByCopies ? masked_fill(x, mask) : x;
  };

  selected_weights = wrappers.read(gate_up_proj);
  if (options.has_bias) selected_biases = index_rows(gate_up_proj_bias, expert_ids_g);
  if (sentinel_mask.defined()) selected_hidden_states_g = masked_fill_in_place(selected_hidden_states_g, sentinel_mask);
  proj_out =
      grouped_linear(selected_hidden_states_g, selected_weights, offsets, selected_biases, options.is_transposed);
  proj_out = copy_masked(proj_out);
  proj_out = activated(proj_out);
  selected_weights = wrappers.read(down_proj);
  if (options.has_bias) selected_biases = index_rows(down_proj_bias, expert_ids_g);
  proj_out = grouped_linear(proj_out, selected_weights, offsets, selected_biases, options.is_transposed);
  proj_out = copy_masked(proj_out);

  weighted_out = proj_out * unsqueeze(sample_weights_g, -1);
  if (form == ExpertForm::kMaskedInPlace) weighted_out = masked_fill_in_place(weighted_out, sentinel_mask);
  if (!inv_perm.defined()) inv_perm = inverse_permutation(perm);
  weighted_out = index_rows(weighted_out, inv_perm);
  final_hidden_states =
      sum_over(view(weighted_out, {hidden_states.size(0), num_top_k, hidden_states.size(1)}), 1, false);
  return to_dtype(final_hidden_states, hidden_states.dtype());
}

}  // namespace memcalc
