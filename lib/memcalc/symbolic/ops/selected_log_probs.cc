#include "memcalc/symbolic/ops/selected_log_probs.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/layout.h"
#include "memcalc/symbolic/modes.h"
#include "memcalc/symbolic/ops/activation.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/index.h"
#include "memcalc/symbolic/ops/integer.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/vectors.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kFunction{"_LogProbEntropyFunctionBackward"};
constexpr Operator kForwardKernel{"trl::_forward_kernel"}, kBackwardKernel{"trl::_backward_kernel"};

void add_kernel(const Operator& op, const Tensor& logits, std::int64_t passes) {
  logits.tape().kernels.add(op, OperatorClass::kElementwise, logits.dtype(),
                            8.0 * static_cast<double>(logits.elements()), static_cast<double>(passes * logits.bytes()));
}

void log_probs_backward(BackwardCall& call) {  // saved: logits, index, log_z, expected_logit
  const Tensor& logits = call.saved(0);
  Tensor result = call.tape.empty(logits.shape(), logits.dtype(), aten::kEmptyLike);
  add_kernel(kBackwardKernel, logits, 2);
  call.set(0, std::move(result));
}

constexpr Operator kBySequence{"SubBackward0"}, kZerosAt{"CopySlices"};
constexpr std::int64_t kEntropyRows = 128;

/// Of each sequence what logsumexp returned, which its derivative reads: [tokens].
struct SumsPayload {
  std::shared_ptr<std::vector<Tensor>> sums;
};

void stack_kernel(const Tensor& stacked) {
  stacked.tape().kernels.add(aten::kStack, OperatorClass::kMovement, stacked.dtype(), 0,
                             2.0 * static_cast<double>(stacked.bytes()));
}

/// What the engine runs one after the other: of the difference, of each logsumexp, the last sequence's first, of the
/// stack (UnbindBackward) and of gather, whose zeros are added in place.
void by_sequence_backward(BackwardCall& call) {  // saved: index, logits
  Tape& tape = call.tape;
  const Tensor& logits = call.saved(1);
  std::vector<Tensor>& sums = *call.payload<SumsPayload>().sums;
  std::vector<Tensor> parts;
  {
    Tensor negated = pointwise(aten::kNeg, {&call.gradient()}, 1);
    const Shape part{logits.size(1), logits.size(2)};
    for (std::size_t i = sums.size(); i-- > 0;) {
      {
        const Tensor sequence = tape.alias(logits, part, contiguous_strides(part), true);
        const Tensor difference = pointwise(aten::kSub, {&sequence}, 1);
        const Tensor exponential = pointwise(aten::kExp, {&difference}, 1);
        parts.push_back(pointwise(aten::kMul, {&exponential}, 1));
      }
      if (i == 0) negated.reset();
      sums[i].reset();
    }
  }
  Tensor result = tape.empty(logits.shape(), logits.dtype(), aten::kStack);
  stack_kernel(result);
  while (!parts.empty()) parts.pop_back();
  const Tensor zeros = tape.empty(logits.shape(), logits.dtype(), aten::kNewZeros);
  tape.kernels.add(aten::kFill, OperatorClass::kMovement, zeros.dtype(), 0, static_cast<double>(zeros.bytes()));
  tape.kernels.add(aten::kAdd, OperatorClass::kElementwise, zeros.dtype(), static_cast<double>(zeros.elements()),
                   3.0 * static_cast<double>(zeros.bytes()));
  call.gradients[0].reset();
  call.set(0, std::move(result));
}

/// AsStridedBackward0, and CopySlices with the derivative of masked_fill_ on a copy of the gradient.
void zeros_at_backward(BackwardCall& call) {  // saved: mask
  const Shape shape = call.saved(0).shape();
  Tape& tape = call.tape;
  const Tensor strided = tape.empty(shape, DType::kFloat32, aten::kNewZeros);
  call.gradients[0].reset();
  Tensor whole = tape.empty(shape, DType::kFloat32, kZerosAt);
  Tensor part = tape.empty(shape, DType::kFloat32, aten::kClone);
  Tensor filled = pointwise(aten::kMaskedFill, {&part}, 1);
  drop(part, filled);
  call.set(0, std::move(whole));
}

}  // namespace

Tensor selected_log_probs(const Tensor& logits, const Tensor& index) {
  Tape& tape = logits.tape();
  const Tensor* inputs[] = {&logits};
  Node* node = tape.autograd.record(kFunction, log_probs_backward, inputs, 1);
  const auto of_each = [&](const Operator& op) { return tape.empty(index.shape(), DType::kFloat32, op); };
  Tensor log_probs = of_each(aten::kEmpty);
  const Tensor entropy = of_each(aten::kEmptyLike), log_z = of_each(aten::kEmptyLike);
  const Tensor expected_logit = of_each(aten::kEmptyLike);
  add_kernel(kForwardKernel, logits, 1);
  tape.autograd.set_history(node, log_probs);
  if (node == nullptr) return log_probs;
  for (const Tensor* each : {&logits, &index, &log_z, &expected_logit}) tape.autograd.save(*node, *each);
  return log_probs;
}

Tensor selected_log_probs_by_sequence(const Tensor& logits, const Tensor& index) {
  Tape& tape = logits.tape();
  const Tensor* inputs[] = {&logits};
  Node* node = tape.autograd.record(kBySequence, by_sequence_backward, inputs, 1);
  const NoGrad no_grad(tape.modes);
  const Tensor x = tape.detach(logits);
  const auto sums = std::make_shared<std::vector<Tensor>>();
  const Tensor selected = gather(x, no_grad::unsqueeze(index, 2));
  for (const Tensor& sequence : unbind(x, 0)) sums->push_back(log_sum_exp(sequence, 0b10, false));
  const Tensor stacked = tape.empty(index.shape(), logits.dtype(), aten::kStack);
  stack_kernel(stacked);
  if (node != nullptr) {
    tape.autograd.save(*node, index);
    tape.autograd.save(*node, logits);
    node->payload.set(SumsPayload{sums});
  } else {
    while (!sums->empty()) sums->pop_back();
  }
  Tensor result = squeeze(subtract(selected, unsqueeze(stacked, 2)), 2);
  tape.autograd.set_history(node, result);
  return result;
}

Tensor zeros_at(const Tensor& log_probs, const Tensor& mask) {
  Tape& tape = log_probs.tape();
  const Tensor* inputs[] = {&log_probs};
  Node* node = tape.autograd.record(kZerosAt, zeros_at_backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, mask);
  Tensor result = tape.detach(log_probs);
  tape.kernels.add(aten::kMaskedFill, OperatorClass::kMovement, result.dtype(), 0,
                   2.0 * static_cast<double>(result.bytes()));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor entropy_from_logits(const Tensor& logits) {
  Tape& tape = logits.tape();
  const NoGrad no_grad(tape.modes);
  const std::int64_t sequences = logits.size(0), tokens = logits.size(1);
  const Tensor flat = view(contiguous(logits), {-1, logits.size(2)});
  std::vector<Tensor> entropies;
  Tensor log_probs;
  for (std::int64_t first = 0; first < flat.size(0); first += kEntropyRows) {
    log_probs = log_softmax(slice(flat, 0, first, std::min(kEntropyRows, flat.size(0) - first)));
    Tensor terms;
    {
      const Tensor probabilities = exponential(log_probs);
      terms = multiply(probabilities, log_probs);
    }
    const Tensor total = sum(terms, 0b10, false);
    terms.reset();
    entropies.push_back(negate(total));
  }
  Tensor result = tape.empty({sequences, tokens}, logits.dtype(), aten::kCat);
  tape.kernels.add(aten::kCat, OperatorClass::kMovement, result.dtype(), 0, 2.0 * static_cast<double>(result.bytes()));
  while (!entropies.empty()) entropies.pop_back();
  return result;
}

}  // namespace memcalc
