// Derivatives: tools/autograd/derivatives.yaml of torch 2.11.
#include "memcalc/symbolic/ops/logarithm.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

enum class Saves : std::uint8_t { kInput, kResult };

Tensor of_one(const AtenOperator& op, BackwardFunction backward, Saves saves, const Tensor& operand) {
  const Tensor x = autocast(op, operand);
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(op, backward, inputs, 1);
  if (node != nullptr && saves == Saves::kInput) tape.autograd.save(*node, x);
  Tensor result = pointwise(op, {&x}, 1);
  tape.autograd.set_history(node, result);
  if (node != nullptr && saves == Saves::kResult) tape.autograd.save(*node, result);
  return result;
}

void logarithm_backward(BackwardCall& call) {
  call.set(0, pointwise(aten::kDiv, {&call.gradient(), &call.saved(0)}, 1));
}

void log1p_backward(BackwardCall& call) {  // grad / (self + 1)
  const Tensor more = pointwise(aten::kAdd, {&call.saved(0)}, 1);
  call.set(0, pointwise(aten::kDiv, {&call.gradient(), &more}, 1));
}

void expm1_backward(BackwardCall& call) {  // grad * (result + 1)
  const Tensor more = pointwise(aten::kAdd, {&call.saved(0)}, 1);
  call.set(0, pointwise(aten::kMul, {&call.gradient(), &more}, 1));
}

/// where(condition, grad, 0), where(condition, 0, grad): the number becomes a scalar on the card.
void where_backward(BackwardCall& call) {
  for (int i = 0; i < call.node.edge_count; ++i) {
    if (!call.needs(i)) continue;
    const Tensor zero = call.tape.empty({}, call.gradient().dtype(), aten::kScalarTensor);
    call.set(i, pointwise(aten::kWhere, {&call.saved(0), &call.gradient()}, 1, call.gradient().dtype()));
  }
}

}  // namespace

Tensor logarithm(Arg x) {
  const OperatorCall call(x);
  return of_one(aten::kLog, logarithm_backward, Saves::kInput, *x);
}

Tensor log1p(Arg x) {
  const OperatorCall call(x);
  return of_one(aten::kLog1p, log1p_backward, Saves::kInput, *x);
}

Tensor expm1(Arg x) {
  const OperatorCall call(x);
  return of_one(aten::kExpm1, expm1_backward, Saves::kResult, *x);
}

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  Tape& tape = a.tape();
  const Tensor* inputs[] = {&a, &b};
  Node* node = tape.autograd.record(aten::kWhere, where_backward, inputs, 2);
  if (node != nullptr) tape.autograd.save(*node, condition);
  // native/TensorCompare.cpp, where_self_out: both in the result's type, before there is a result.
  const DType type = result_type({&a, &b});
  const auto converted = [&](const Tensor& x) {
    const NoGrad no_grad(tape.modes);
    return to_dtype(x, type);
  };
  Tensor in_type = converted(a), other_in_type = converted(b);
  Tensor result = pointwise(aten::kWhere, {&condition, &in_type, &other_in_type}, 1, type);
  drop(other_in_type, in_type);
  tape.autograd.set_history(node, result);
  return result;
}

}  // namespace memcalc
