#include "memcalc/symbolic/ops/in_place.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

void multiply_tensor_in_place_backward(BackwardCall& call) {
  int next = 0;
  const int other = call.node.edges[0].node != kNoNode ? next++ : -1;
  const int self = call.node.edges[1].node != kNoNode ? next++ : -1;
  if (call.needs(1)) call.set(1, pointwise(aten::kMul, {&call.gradient(), &call.saved(self)}, 1));
  if (call.needs(0)) call.set(0, pointwise(aten::kMul, {&call.gradient(), &call.saved(other)}, 1));
}

}  // namespace

Tensor multiply_in_place(const Tensor& x, const Tensor& y) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x, &y};
  Node* node = tape.autograd.record(aten::kMul, multiply_tensor_in_place_backward, inputs, 2);
  if (node != nullptr) {
    if (x.requires_grad()) tape.autograd.save(*node, y);
    if (y.requires_grad()) tape.autograd.save(*node, tape.empty(x.shape(), x.dtype(), aten::kClone));
  }
  Tensor result = tape.detach(x);
  tape.kernels.add(aten::kMul, OperatorClass::kElementwise, x.dtype(), static_cast<double>(x.elements()),
                   static_cast<double>(2 * x.bytes()) + read_bytes(y), elementwise_kind(x, {&x, &y}),
                   static_cast<double>(x.elements()));
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
