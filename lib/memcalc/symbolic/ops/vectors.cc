// MIRRORS(torch, "ReduceOps.cpp", "2.11.0")
#include "memcalc/symbolic/ops/vectors.h"

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/aten_programs.h"
#include "memcalc/symbolic/ops/elementwise.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/recorded_node.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

struct ReducedDimensions {
  unsigned dropped = 0;  // those that were not kept, a bit each
};

Tensor pw(const Operator& op, std::initializer_list<const Tensor*> inputs) { return pointwise(op, inputs, 1); }

Tensor with_dropped(Tensor gradient, unsigned dropped) {
  for (int dim = 0; dim < kMaxDims; ++dim) {
    if ((dropped >> dim & 1) != 0) gradient = unsqueeze(std::move(gradient), dim);
  }
  return gradient;
}

/// norm_backward for 2: grad * (self / norm).masked_fill_(norm == 0, 0)
void vector_norm_backward(BackwardCall& call) {  // saved: self, result
  const unsigned dropped = call.payload<ReducedDimensions>().dropped;
  Tensor gradient = with_dropped(call.gradient(), dropped);
  Tensor norm = with_dropped(call.saved(1), dropped);
  Tensor quotient = pw(aten::kDiv, {&call.saved(0), &norm});
  Tensor zero = pointwise(aten::kEq, {&norm}, 1, DType::kBool);
  call.set(0, pw(aten::kMul, {&gradient, &quotient}));
  drop(zero, quotient);
}

/// norm_backward for 1: grad * self.sgn()
void one_norm_backward(BackwardCall& call) {  // saved: self
  const Tensor gradient = with_dropped(call.gradient(), call.payload<ReducedDimensions>().dropped);
  const Tensor sign = pw(aten::kSgn, {&call.saved(0)});
  call.set(0, pw(aten::kMul, {&gradient, &sign}));
}

/// grad * (self - result).exp()
void log_sum_exp_backward(BackwardCall& call) {  // saved: self, result
  const unsigned dropped = call.payload<ReducedDimensions>().dropped;
  Tensor gradient = with_dropped(call.gradient(), dropped);
  Tensor result = with_dropped(call.saved(1), dropped);
  const Tensor difference = pw(aten::kSub, {&call.saved(0), &result});
  const Tensor exponential = pw(aten::kExp, {&difference});
  call.set(0, pw(aten::kMul, {&gradient, &exponential}));
}

void dot_backward(BackwardCall& call) {  // saved: the other one
  call.set(0, pw(aten::kMul, {&call.gradient(), &call.saved(0)}));
}

}  // namespace

Tensor vector_norm(const Tensor& x, unsigned dims, bool keep_dims, std::optional<DType> dtype) {
  Tape& tape = x.tape();
  const DType type = dtype.value_or(autocast_result(aten::kLinalgVectorNorm, x));
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kLinalgVectorNorm, vector_norm_backward, inputs, 1);
  if (node != nullptr) {
    // Of everything it is a scalar, which does not promote what it divides.
    node->payload.set(ReducedDimensions{.dropped = keep_dims || dims + 1 == 1U << x.rank() ? 0 : dims});
    tape.autograd.save(*node, x);
  }
  Tensor result = reduced(aten::kLinalgVectorNorm, x, dims, keep_dims, type);
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, result);
  return result;
}

Tensor one_norm(const Tensor& x, unsigned dims, bool keep_dims, std::optional<DType> dtype) {
  Node* node = record(aten::kLinalgVectorNorm, one_norm_backward, {&x}, {&x});
  if (node != nullptr) node->payload.set(ReducedDimensions{.dropped = keep_dims ? 0 : dims});
  const DType type = dtype.value_or(autocast_result(aten::kLinalgVectorNorm, x));
  return finish(node, reduced(aten::kLinalgVectorNorm, x, dims, keep_dims, type), true);
}

Tensor log_sum_exp(Arg operand, unsigned dims, bool keep_dims) {
  const OperatorCall call(operand);
  const Tensor x = autocast(aten::kLogsumexp, *operand);
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(aten::kLogsumexp, log_sum_exp_backward, inputs, 1);
  if (node != nullptr) {
    node->payload.set(ReducedDimensions{.dropped = keep_dims ? 0 : dims});
    tape.autograd.save(*node, x);
  }
  // ReduceOps.cpp, logsumexp_out_impl: the largest values, of which infinite ones become 0, then (x - largest).exp_(),
  // summed.
  Tensor largest = reduced(aten::kAmax, x, dims, true);
  {
    const Tensor size = pw(aten::kAbs, {&largest});
    const Tensor infinite = pointwise(aten::kEq, {&size}, 1, DType::kBool);
  }
  Tensor result;
  {
    const Tensor exponential = pw(aten::kExp, {&x, &largest});
    result = reduced(aten::kSum, exponential, dims, keep_dims);
  }
  largest.reset();
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, result);
  return result;
}

Tensor dot(Arg a, Arg b) {
  const OperatorCall call(a, b);
  Tape& tape = a->tape();
  const Tensor* inputs[] = {&*a};
  Node* node = tape.autograd.record(aten::kDot, dot_backward, inputs, 1);
  if (node != nullptr) tape.autograd.save(*node, *b);
  Tensor result = tape.empty({}, a->dtype(), aten::kDot);
  tape.kernels.add(aten::kDot, OperatorClass::kElementwise, a->dtype(), 2.0 * static_cast<double>(a->elements()),
                   2.0 * static_cast<double>(a->bytes()));
  tape.autograd.set_history(node, result);
  return result;
}

Tensor normalized_rows(const Tensor& x) {
  // norm(…).clamp_min(eps): of one bound the gradient makes one comparison, as of the upper one.
  const Tensor lengths = clamp_above(vector_norm(x, 0b10, true));
  return divide_both(x, expand(lengths, x.shape()));
}

}  // namespace memcalc
