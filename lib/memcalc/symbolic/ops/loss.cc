// MIRRORS(torch, "FunctionsManual.cpp", "2.11.0")
// MIRRORS(torch, "cuda/LossCTC.cu", "2.11.0")
// MIRRORS(torch, "native/Loss.cpp", "2.11.0")
#include "memcalc/symbolic/ops/loss.h"

#include <array>

#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

void nll_loss_backward(BackwardCall& call) {  // saved: self, target, total_weight
  const Tensor& self = call.saved(0);
  Tensor result = call.tape.empty(self.shape(), self.dtype(), aten::kNllLossBackward);
  call.tape.kernels.add(aten::kNllLossBackward, OperatorClass::kMovement, self.dtype(), 0,
                        static_cast<double>(self.bytes()));
  call.set(0, std::move(result));
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, LossReduction reduction) {
  const AtenOperator& op = reduction == LossReduction::kSum ? aten::kNllLossSum : aten::kNllLossForward;
  const Tensor self = autocast(aten::kNllLossForward, log_probabilities);
  Tape& tape = self.tape();
  const Tensor* inputs[] = {&self};
  Node* node = tape.autograd.record(op, nll_loss_backward, inputs, 1);
  if (node != nullptr) {
    tape.autograd.save(*node, self);
    tape.autograd.save(*node, targets);
  }
  Tensor loss = tape.empty({}, self.dtype(), aten::kNllLossForward);
  const Tensor total_weight = tape.empty({}, self.dtype(), aten::kNllLossForward);
  tape.kernels.add(aten::kNllLossForward, OperatorClass::kElementwise, self.dtype(),
                   static_cast<double>(targets.elements()), static_cast<double>(targets.bytes()));
  tape.autograd.set_history(node, loss);
  if (node != nullptr) tape.autograd.save(*node, total_weight);
  return loss;
}

struct CtcLossPayload {
  std::int64_t label_length = 0;
};

/// Where each label begins, and how long labels and inputs are.
std::array<Tensor, 3> ctc_lengths(Tape& tape, std::int64_t batch, const Operator& op) {
  std::array<Tensor, 3> lengths;
  for (Tensor& each : lengths) each = tape.empty({batch}, DType::kInt64, op);
  return lengths;
}

/// A blank before, between and after the symbols of a label.
Shape ctc_states(const Tensor& log_probs, std::int64_t label_length) {
  return {log_probs.size(1), log_probs.size(0), 2 * label_length + 1};
}

/// cuda/LossCTC.cu, ctc_loss_backward_gpu_template: beta as alpha; of long inputs the blanks' part with logsumexp.
void ctc_loss_backward(BackwardCall& call) {  // saved: log_probs, targets, loss, log_alpha
  Tape& tape = call.tape;
  const Tensor& log_probs = call.saved(0);
  const std::int64_t frames = log_probs.size(0), batch = log_probs.size(1), symbols = log_probs.size(2);
  const std::int64_t label = call.payload<CtcLossPayload>().label_length;
  const auto made = [&](const Shape& shape, DType dtype) { return tape.empty(shape, dtype, aten::kCtcLossBackward); };
  auto lengths = ctc_lengths(tape, batch, aten::kCtcLossBackward);
  Tensor beta = made(ctc_states(log_probs, label), log_probs.dtype());
  Tensor result = made(log_probs.shape(), log_probs.dtype());  // row-major, as transposed as log_probs may be
  const bool is_large = 2 * frames + (24 * batch) / 10 + (2 * symbols) / 10 > 450;
  if (is_large) {
    Tensor blanks = made({batch, frames, label + 1}, log_probs.dtype());
    Tensor of_blanks = made({batch, frames}, log_probs.dtype());
    Tensor largest = made({batch, frames}, log_probs.dtype());
    { const Tensor infinite = made({batch, frames}, DType::kBool); }
    largest.reset();
    Tensor powers = made({batch, frames, label + 1}, log_probs.dtype());
    Tensor sums = made({batch, frames}, log_probs.dtype());
    drop(powers, sums, of_blanks, blanks);
  }
  tape.kernels.add(aten::kCtcLossBackward, OperatorClass::kElementwise, log_probs.dtype(),
                   3.0 * static_cast<double>(beta.elements()),
                   static_cast<double>(2 * beta.bytes() + 2 * log_probs.bytes()));
  beta.reset();
  for (Tensor& each : lengths) each.reset();
  call.set(0, std::move(result));
}

/// FunctionsManual.cpp, binary_cross_entropy_with_logits_backward: sigmoid(input).sub_(target).mul_(grad).div_(numel)
void binary_cross_entropy_backward(BackwardCall& call) {  // saved: input, target
  call.set(0, pointwise(aten::kSigmoid, {&call.saved(0)}, 4));
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, std::int64_t label_length) {
  Tape& tape = log_probs.tape();
  const Tensor* inputs[] = {&log_probs};
  Node* node = tape.autograd.record(aten::kCtcLoss, ctc_loss_backward, inputs, 1);
  if (node != nullptr) {
    node->payload.set(CtcLossPayload{label_length});
    tape.autograd.save(*node, log_probs);
    tape.autograd.save(*node, targets);
  }
  auto lengths = ctc_lengths(tape, log_probs.size(1), aten::kCtcLoss);
  const Tensor alpha = tape.empty(ctc_states(log_probs, label_length), log_probs.dtype(), aten::kCtcLoss);
  Tensor loss = tape.empty({log_probs.size(1)}, log_probs.dtype(), aten::kCtcLoss);
  tape.kernels.add(aten::kCtcLoss, OperatorClass::kElementwise, log_probs.dtype(),
                   3.0 * static_cast<double>(alpha.elements()), static_cast<double>(alpha.bytes() + log_probs.bytes()));
  for (Tensor& each : lengths) each.reset();
  tape.autograd.set_history(node, loss);
  if (node != nullptr) {
    tape.autograd.save(*node, loss);
    tape.autograd.save(*node, alpha);
  }
  return loss;
}

// native/Loss.cpp: (1 - target).mul_(input).sub_(log_sigmoid(input)), then its mean.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& targets) {
  const Tensor self = autocast(aten::kBinaryCrossEntropyWithLogits, logits);
  Tape& tape = self.tape();
  const Tensor* inputs[] = {&self};
  Node* node = tape.autograd.record(aten::kBinaryCrossEntropyWithLogits, binary_cross_entropy_backward, inputs, 1);
  if (node != nullptr) {
    tape.autograd.save(*node, self);
    tape.autograd.save(*node, targets);
  }
  Tensor loss;
  {
    const Tensor log_sigmoid = pointwise(aten::kLogSigmoidForward, {&self}, 4);
    const Tensor losses = pointwise(aten::kSub, {&targets}, 3);
    loss = reduced(aten::kMean, losses, (1U << losses.rank()) - 1, false);
  }
  tape.autograd.set_history(node, loss);
  return loss;
}

Tensor nll_loss_sum(const Tensor& log_probabilities, const Tensor& targets) {
  return nll_loss(log_probabilities, targets, LossReduction::kSum);
}

Tensor cross_entropy(const Tensor& logits, Arg targets, LossReduction reduction) {
  const OperatorCall call(targets);
  // cross_entropy_loss names the dtype, so autocast leaves the softmax in 16 bits; nll_loss is on its float32 list.
  const Tensor log_probabilities = log_softmax(logits);
  return nll_loss(log_probabilities, *targets, reduction);
}

}  // namespace memcalc
