// MIRRORS(torch, "ReduceOps.cpp", "2.11.0")
#include "memcalc/symbolic/ops/vectors.h"

#include <cmath>

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

struct OrderPayload {
  double order = 0;
  unsigned dropped = 0;  // the dimensions that were not kept, a bit each
  unsigned reduced = 0;
};

/// norm_backward for an infinite order: self.sgn() * (grad / mask.sum(dims, keepdim) * mask), where the mask has what
/// is as large as the norm, or no number.
Tensor largest_norm_gradient(const Tensor& self, const Tensor& norm, const Tensor& gradient, unsigned dims) {
  const Tensor size = pw(aten::kAbs, {&self});
  Tensor mask;
  {
    const Tensor equal = pointwise(aten::kEq, {&size, &norm}, 1, DType::kBool);
    const Tensor is_nan = pointwise(aten::kIsnan, {&size}, 1, DType::kBool);
    mask = pointwise(aten::kLogical, {&equal, &is_nan}, 1, DType::kBool);
  }
  const Tensor count = reduced(aten::kSum, mask, dims, true, DType::kInt64);
  const Tensor share = pointwise(aten::kDiv, {&gradient, &count}, 1, gradient.dtype());
  const Tensor chosen = pw(aten::kMul, {&share, &mask});
  const Tensor sign = pw(aten::kSgn, {&self});
  return pw(aten::kMul, {&sign, &chosen});
}

/// FunctionsManual.cpp, norm_backward, of orders that have no formula of their own. What is raised to a power, filled
/// or divided in place takes nothing more.
void order_norm_backward(BackwardCall& call) {  // saved: self, result
  const auto& [order, dropped, dims] = call.payload<OrderPayload>();
  if (order == 0) return;
  const Tensor gradient = with_dropped(call.gradient(), dropped), norm = with_dropped(call.saved(1), dropped);
  const Tensor& self = call.saved(0);
  if (std::isinf(order)) return call.set(0, largest_norm_gradient(self, norm, gradient, dims));
  if (order < 1) {  // self.sgn() * self.abs().pow_(p - 1).masked_fill_(self == 0, 0) * grad * norm.pow(1 - p)
    Tensor scaled;
    {
      const Tensor size = pw(aten::kAbs, {&self});
      const Tensor zero = pointwise(aten::kEq, {&self}, 1, DType::kBool);
      const Tensor sign = pw(aten::kSgn, {&self});
      scaled = pw(aten::kMul, {&sign, &size});
    }
    const Tensor power = pw(aten::kPow, {&norm});
    const Tensor product = pw(aten::kMul, {&scaled, &gradient});
    return call.set(0, pw(aten::kMul, {&product, &power}));
  }
  Tensor scaled;  // self * self.abs().pow_(p - 2), below 2 self.sgn() * self.abs().pow_(p - 1)
  {
    const Tensor size = pw(aten::kAbs, {&self});
    const Tensor sign = order < 2 ? pw(aten::kSgn, {&self}) : Tensor();
    scaled = pw(aten::kMul, {&self, &size});
  }
  Tensor scale;  // grad / norm.pow(p - 1), 0 where the norm is 0
  {
    const Tensor power = pw(aten::kPow, {&norm});
    scale = pw(aten::kDiv, {&gradient, &power});
  }
  { const Tensor zero = pointwise(aten::kEq, {&norm}, 1, DType::kBool); }
  call.set(0, pw(aten::kMul, {&scaled, &scale}));
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

Tensor norm_of_order(const Tensor& x, double order, unsigned dims, bool keep_dims, std::optional<DType> dtype) {
  Node* node = record(aten::kLinalgVectorNorm, order_norm_backward, {&x}, {&x});
  if (node != nullptr) node->payload.set(OrderPayload{order, keep_dims ? 0 : dims, dims});
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
