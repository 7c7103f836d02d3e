#include "memcalc/symbolic/ops/all_reduce.h"

#include <utility>

#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

constexpr Operator kAllReduce{"c10d::allreduce_"};
constexpr Operator kForwardNode{"_AllReduceForwardBackward"}, kBackwardNode{"_AllReduceBackwardBackward"};

void pass_gradient(BackwardCall& call) { call.set(0, call.take_gradient()); }

void sum_gradient(BackwardCall& call) {
  Tensor gradient = contiguous(call.take_gradient());
  call.tape.kernels.collective(kAllReduce, Collective::kAllReduce, gradient.dtype(), gradient.bytes(),
                               call.payload<RankCount>().ranks);
  call.set(0, std::move(gradient));
}

/// An autograd.Function that returns its input.
Tensor same_with_node(const Tensor& x, const Operator& name, BackwardFunction backward, std::int64_t ranks) {
  Tape& tape = x.tape();
  const Tensor* const inputs[] = {&x};
  Node* node = tape.autograd.record(name, backward, inputs, 1);
  Tensor output = tape.alias(x, x.shape(), x.strides(), true);
  if (node == nullptr) return output;
  node->payload.set(RankCount{ranks});
  tape.autograd.set_history(node, output);
  return output;
}

}  // namespace

Tensor all_reduce_forward(const Tensor& x, std::int64_t ranks) {
  x.tape().kernels.collective(kAllReduce, Collective::kAllReduce, x.dtype(), x.bytes(), ranks);
  return same_with_node(x, kForwardNode, &pass_gradient, ranks);
}

Tensor all_reduce_backward(const Tensor& x, std::int64_t ranks) {
  return same_with_node(x, kBackwardNode, &sum_gradient, ranks);
}

}  // namespace memcalc
