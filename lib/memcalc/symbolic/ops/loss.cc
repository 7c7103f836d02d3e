#include "memcalc/symbolic/ops/loss.h"

#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/norm.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kNllLoss{"aten::nll_loss_forward"}, kNllLossBackward{"NllLossBackward0"};
constexpr Operator kNllLossBackwardOp{"aten::nll_loss_backward"};

void nll_loss_backward(BackwardCall& call) {  // saved: self, target, total_weight
  const Tensor& self = call.saved(0);
  Tensor result = call.tape.empty(self.shape(), self.dtype(), kNllLossBackwardOp);
  call.tape.kernels.add(kNllLossBackwardOp, OperatorClass::kMovement, self.dtype(), 0,
                        static_cast<double>(self.bytes()));
  call.set(0, std::move(result));
}

Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets) {
  const Tensor self = autocast_float32(log_probabilities);
  Tape& tape = self.tape();
  const Tensor* inputs[] = {&self};
  Node* node = tape.autograd.record(kNllLossBackward, nll_loss_backward, inputs, 1);
  if (node != nullptr) {
    tape.autograd.save(*node, self);
    tape.autograd.save(*node, targets);
  }
  Tensor loss = tape.empty({}, self.dtype(), kNllLoss);
  const Tensor total_weight = tape.empty({}, self.dtype(), kNllLoss);
  tape.kernels.add(kNllLoss, OperatorClass::kElementwise, self.dtype(), static_cast<double>(targets.elements()),
                   static_cast<double>(targets.bytes()));
  tape.autograd.set_history(node, loss);
  if (node != nullptr) tape.autograd.save(*node, total_weight);
  return loss;
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, Arg targets) {
  const OperatorCall call(targets);
  // cross_entropy_loss names the dtype, so autocast leaves the softmax in 16 bits; nll_loss is on its float32 list.
  const Tensor log_probabilities = log_softmax(logits);
  return nll_loss(log_probabilities, *targets);
}

}  // namespace memcalc
