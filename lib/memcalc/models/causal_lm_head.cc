// MIRRORS(trl, "trainer/utils.py", "1.16.0")
#include "memcalc/models/causal_lm_head.h"

#include <utility>

#include "memcalc/models/attention.h"
#include "memcalc/models/chunked_cross_entropy.h"
#include "memcalc/models/load_balancing_loss.h"
#include "memcalc/symbolic/module_hooks.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/cut_cross_entropy.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/scatter.h"
#include "memcalc/symbolic/ops/unsloth.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

/// x.new_zeros(mask.shape).masked_scatter(mask, x), after which nobody else holds x.
Tensor at_their_places(const Tensor& mask, const Tensor& numbers) {
  if (!numbers.defined()) return {};
  return masked_scatter(no_grad::new_zeros(mask.tape(), mask.shape(), numbers.dtype()), mask, numbers);
}

/// load_balancing_loss_func, with the coefficient of the config.
void add_router_loss(const Batch& batch, ModelOutput& output, const CausalLmHead& head) {
  if (head.router_logits == nullptr || head.router_logits->empty()) return;
  output.fused.aux_loss = load_balancing_loss(*head.router_logits, head.experts_per_token, batch.attention_mask);
  output.loss = add(output.loss, multiply_scalar(output.fused.aux_loss));
}

/// trl 1.16, trainer/utils.py, add_fused_lm_head: _fused_forward behind the backbone.
void fused_forward(const Linear& lm_head, const Tensor& last_hidden_state, const Batch& batch, ModelOutput& output,
                   const CausalLmHead& head) {
  const std::int64_t tokens = last_hidden_state.size(1), labels_of_sample = batch.labels.size(1);
  Tape& tape = last_hidden_state.tape();
  Tensor hidden_states = slice(last_hidden_state, 1, 0, tokens - 1);
  const Tensor labels = no_grad::slice(batch.labels, 1, 1, labels_of_sample - 1);
  FusedHead& fused = output.fused;
  const FusedHeadCall& call = *batch.fused_head;
  fused.label_mask = no_grad::not_equal(labels);
  ChunkedLogProbs per_token;
  {
    ModuleHooks* hooks = tape.modes.module_hooks;
    // cast_lm_head_to_fp32: hidden_states.float(), and torch.autocast(enabled=False)
    const bool in_float32 = tape.modes.head_in_float32;
    if (in_float32) hidden_states = to_dtype(hidden_states, DType::kFloat32);
    const Scoped<std::optional<DType>> autocast(tape.modes.autocast.dtype,
                                                in_float32 ? std::nullopt : tape.modes.autocast.dtype);
    const DirectRead weight(hooks, lm_head.weight), bias(hooks, lm_head.bias);  // maybe_gather_lm_head_ctx
    const std::int64_t count = call.targets;
    const Tensor states = index_by_mask(hidden_states, 0, fused.label_mask, count);
    per_token = chunked_log_probs(states, weight.tensor(), bias.tensor(),
                                  index_by_mask(labels, 0, fused.label_mask, count), call.outputs);
  }
  fused.log_probs = at_their_places(fused.label_mask, per_token.log_probs);
  fused.entropy = at_their_places(fused.label_mask, per_token.entropy);
  fused.log_sum_sq_probs = at_their_places(fused.label_mask, per_token.log_sum_sq_probs);
  fused.mean_logits = at_their_places(fused.label_mask, per_token.mean_logits);
  fused.is_top1 = at_their_places(fused.label_mask, per_token.is_top1);
  drop(per_token.log_probs, per_token.entropy, per_token.log_sum_sq_probs, per_token.mean_logits, per_token.is_top1);
  Tensor negated = negate(sum(fused.log_probs, 0b11, false));
  output.loss = divide(std::move(negated), no_grad::clamp(no_grad::sum(fused.label_mask)));
  add_router_loss(batch, output, head);
}

/// Labels that take part in the loss: each predicts the next one.
std::int64_t targets_of(const Batch& batch) {
  const std::int64_t rows = batch.labels.size(0);
  return batch.valid_labels > 0 ? batch.valid_labels - rows : rows * (batch.labels.size(1) - 1);
}

/// cut_cross_entropy of axolotl's fork, transformers/llama.py, cohere.py, granite.py, gemma3.py, utils.py (apply_lce):
/// what a family does to its logits is done to the states, or by the kernels (softcap).
Tensor cut_causal_lm_loss(const Tensor& hidden_states, const Linear& lm_head, const Batch& batch, LogitsChange change) {
  Tensor states = kept_positions(hidden_states, batch);
  if (change == LogitsChange::kDivided) states = divide_scalar(states);
  if (change == LogitsChange::kMultiplied) states = multiply_scalar(states);
  if (lm_head.weight.dtype() == DType::kBFloat16) states = to_dtype(states, DType::kBFloat16);
  Tensor loss = cut_cross_entropy(states, lm_head.weight, lm_head.bias, batch.labels, targets_of(batch),
                                  change == LogitsChange::kSoftcapped);
  states.reset();
  if (batch.number_of_items.defined()) loss = divide(loss, batch.number_of_items);
  return loss;
}

/// lm_head and loss_function.
void predict_next_tokens(const Linear& lm_head, const Tensor& hidden_states, const Batch& batch, ModelOutput& output,
                         const CausalLmHead& head) {
  Tensor scaled;  // the backbone's output holds the others until the end
  if (head.logits == LogitsChange::kStatesDivided) scaled = divide_scalar(hidden_states);
  Tensor states = kept_positions(scaled.defined() ? scaled : hidden_states, batch);
  if (states.tape().modes.head_in_float32) states = to_dtype(states, DType::kFloat32);
  output.logits = lm_head(states);
  states.reset();
  if (head.logits == LogitsChange::kDivided) output.logits = divide_scalar(output.logits);
  if (head.logits == LogitsChange::kFloat32) output.logits = to_dtype(output.logits, DType::kFloat32);
  if (head.logits == LogitsChange::kMultiplied) output.logits = multiply_scalar(output.logits);
  const bool multiplied_first = head.logits == LogitsChange::kMultipliedSoftcapped;
  if (multiplied_first) output.logits = multiply_scalar(output.logits);
  if (head.logits == LogitsChange::kSoftcapped || multiplied_first) {
    output.logits = divide_scalar(output.logits);
    output.logits = tanh(output.logits);
    output.logits = multiply_scalar(output.logits);
  }
  if (!batch.labels.defined()) return;
  GraphCapture* capture = output.logits.tape().modes.capture;
  if (head.loss_breaks_graph && capture != nullptr) capture->break_graph(output.logits);
  output.loss = causal_lm_loss(output.logits, batch.labels, batch.number_of_items);
  add_router_loss(batch, output, head);
}

}  // namespace

void predict(const std::optional<SequenceClassifier>& classifier, const Linear& lm_head, Tensor& hidden_states,
             const Batch& batch, ModelOutput& output, CausalLmHead head) {
  if (classifier) {
    classifier->forward(hidden_states, batch, output);
    return;
  }
  if (batch.fused_head != nullptr) {
    const bool whole = hidden_states.tape().behaviors.sft_loss == SftLossForm::kFusedHead;
    whole ? fused_forward(lm_head, hidden_states, batch, output, head)
          : chunked_forward(lm_head, hidden_states, batch, output, head.logits);
    return;
  }
  if (head.liger && batch.labels.defined()) {
    output.loss = liger_causal_lm_loss(hidden_states, lm_head.weight, batch.labels, batch.number_of_items);
    return;
  }
  if (head.unsloth && batch.labels.defined()) {
    output.loss = unsloth_linear_cross_entropy(hidden_states, lm_head.weight, batch.labels, targets_of(batch));
    return;
  }
  if (hidden_states.tape().modes.cut_cross_entropy && batch.labels.defined()) {
    output.loss = cut_causal_lm_loss(hidden_states, lm_head, batch, head.logits);
    add_router_loss(batch, output, head);
    return;
  }
  if (batch.labels.defined()) {
    std::optional<ModelOutput> compiled =
        compiled_head({hidden_states, batch.labels, batch.number_of_items}, [&](const KeptTensors& traced) {
          Batch of_graph = batch;
          of_graph.labels = traced[1];
          of_graph.number_of_items = traced[2];
          ModelOutput made;
          predict_next_tokens(lm_head, traced[0], of_graph, made, head);
          return made;
        });
    if (compiled) {
      output.loss = std::move(compiled->loss);
      output.logits = std::move(compiled->logits);
      return;
    }
  }
  predict_next_tokens(lm_head, hidden_states, batch, output, head);
}

}  // namespace memcalc
