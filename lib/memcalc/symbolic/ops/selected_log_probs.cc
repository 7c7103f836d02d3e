#include "memcalc/symbolic/ops/selected_log_probs.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
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

}  // namespace memcalc
