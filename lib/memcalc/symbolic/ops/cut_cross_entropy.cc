// cut_cross_entropy (axolotl-ai-cloud/ml-cross-entropy, 25.9): cce.py, cce_lse_forward.py, indexed_dot.py,
// cce_backward.py, utils.py. The kernels that torch.compile makes of a cap and of the order of the vocabulary ask for
// their results alone.
#include "memcalc/symbolic/ops/cut_cross_entropy.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/sort.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kLse{"cut_cross_entropy::lse"}, kIndexedDot{"cut_cross_entropy::indexed_neg_dot"};
constexpr Operator kBackward{"LinearCrossEntropyFunctionBackward"};
constexpr std::int64_t kRowsOfLock = 128, kColumnsOfLock = 64;

struct LossPayload {
  std::int64_t targets = 0;
  Tensor valids;  // ctx.params has them until the node dies
};

/// sort_logit_avg: torch.argsort of the vocabulary's mean logits, as int32. torch.compile leaves the sort to ATen.
Tensor vocabulary_order(const Tensor& mean_logits) {
  Selection sorted = sort(mean_logits);
  sorted.values.reset();
  return no_grad::to(std::move(sorted.indices), DType::kInt32);
}

/// Kernels: each block of rows and of the vocabulary computes its logits anew, and adds to both gradients.
void linear_cross_entropy_backward(BackwardCall& call) {  // saved: states, weight, lse, targets, valids, logit_avg
  Tape& tape = call.tape;
  const Tensor& states = call.saved(0);
  const Tensor& weight = call.saved(1);
  const std::int64_t rows = call.payload<LossPayload>().targets;
  const std::int64_t width = weight.size(1), vocabulary = weight.size(0);
  const Tensor order = vocabulary_order(call.saved(5));
  const auto locks = [&](std::int64_t of) {
    return tape.empty({ceil_div(of, kRowsOfLock), ceil_div(width, kColumnsOfLock)}, DType::kInt32, kBackward);
  };
  Tensor states_gradient, weight_gradient, bias_gradient, states_locks, weight_locks;
  if (call.needs(0)) states_gradient = tape.empty(states.shape(), states.dtype(), aten::kZerosLike);
  if (call.needs(1)) weight_gradient = tape.empty(weight.shape(), weight.dtype(), aten::kZerosLike);
  const bool has_bias = call.node.edge_count > 2;
  if (has_bias && call.needs(2)) bias_gradient = tape.empty({vocabulary}, DType::kFloat32, aten::kZerosLike);
  if (call.needs(0)) states_locks = locks(rows);
  if (call.needs(1)) weight_locks = locks(vocabulary);
  const int products = 1 + (call.needs(0) ? 1 : 0) + (call.needs(1) ? 1 : 0);
  for (int i = 0; i < products; ++i) tape.kernels.product(kBackward, states.dtype(), 1, rows, vocabulary, width);
  if (bias_gradient.defined()) bias_gradient = no_grad::to(std::move(bias_gradient), weight.dtype());
  drop(states_locks, weight_locks);
  call.set(0, std::move(states_gradient));
  call.set(1, std::move(weight_gradient));
  if (has_bias) call.set(2, std::move(bias_gradient));
}

/// utils.py, _build_flat_valids with shift 1: the rows that have a label, int64.
Tensor valid_rows(const Tensor& labels, std::int64_t targets) {
  const Tensor shifted = no_grad::slice(labels, 1, 1, labels.size(1) - 1);
  Tensor places;
  {
    const Tensor is_label = no_grad::not_equal(shifted);
    places = nonzero(is_label, targets);
  }
  places = no_grad::to(std::move(places), DType::kInt32);
  return no_grad::sum(places, 1);
}

}  // namespace

Tensor cut_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& bias, const Tensor& labels,
                         std::int64_t targets, bool softcap) {
  for (const Tensor* each : {&hidden, &weight}) {
    if (each->dtype() == DType::kFloat32) throw refusal(rules::kCutCrossEntropyTypes);
  }
  Tape& tape = hidden.tape();
  Tensor valids;
  {
    const NoGrad no_grad(tape.modes);
    valids = valid_rows(labels, targets);
  }
  const Tensor states = view(hidden, {-1, hidden.size(-1)});
  const Tensor* inputs[] = {&states, &weight, &bias};
  Node* node = tape.autograd.record(kBackward, linear_cross_entropy_backward, inputs, bias.defined() ? 3 : 2);
  const std::int64_t width = weight.size(1), vocabulary = weight.size(0);
  Tensor lse, mean_logits, loss;
  {
    const NoGrad no_grad(tape.modes);
    lse = tape.empty({targets}, DType::kFloat32, kLse);
    {
      const Tensor locks = tape.empty({ceil_div(targets, kRowsOfLock)}, DType::kInt32, kLse);
      if (node != nullptr) mean_logits = tape.empty({vocabulary}, DType::kFloat32, kLse);
      tape.kernels.product(kLse, hidden.dtype(), 1, targets, vocabulary, width);
    }
    Tensor nll = tape.empty({targets}, DType::kFloat32, aten::kNewZeros);
    tape.kernels.add(kIndexedDot, OperatorClass::kMovement, hidden.dtype(), 2.0 * static_cast<double>(targets * width),
                     2.0 * static_cast<double>(targets * width * size_of(hidden.dtype())));
    if (softcap) nll = tape.empty({targets}, DType::kFloat32, kIndexedDot);
    loss = sum_all(nll);
  }
  if (node != nullptr) {
    node->payload.set(LossPayload{targets, valids});
    for (const Tensor& each : {states, weight, lse, labels, valids, mean_logits}) tape.autograd.save(*node, each);
  }
  tape.autograd.set_history(node, loss);
  return loss;
}

}  // namespace memcalc
