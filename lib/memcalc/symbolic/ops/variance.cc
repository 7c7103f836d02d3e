// Derivatives: tools/autograd/derivatives.yaml and torch/csrc/autograd/FunctionsManual.cpp of torch 2.11.
// MIRRORS(torch, "torch/csrc/autograd/FunctionsManual.cpp", "2.11.0")
#include "memcalc/symbolic/ops/variance.h"

#include <utility>

#include "memcalc/symbolic/aten.h"
#include "memcalc/symbolic/operator_call.h"
#include "memcalc/symbolic/ops/pointwise.h"
#include "memcalc/symbolic/ops/reduce.h"
#include "memcalc/symbolic/ops/view.h"
#include "memcalc/symbolic/tape.h"

namespace memcalc {

namespace {

Tensor kernel(const Operator& op, std::initializer_list<const Tensor*> inputs) { return pointwise(op, inputs, 1); }

Tensor with_kept(Tensor gradient, unsigned dropped) {
  for (int dim = 0; dim < kMaxDims; ++dim) {
    if ((dropped >> dim & 1) != 0) gradient = unsqueeze(std::move(gradient), dim);
  }
  return gradient;
}

struct VariancePayload {
  unsigned dropped = 0;  // the dimensions that were not kept, a bit each
  unsigned reduced = 0;
};

/// var_backward: (2 / n) * grad * (self - self.mean(dim, true))
void var_backward(BackwardCall& call) {
  const auto& [dropped, dims] = call.payload<VariancePayload>();
  const Tensor& self = call.saved(0);
  Tensor gradient = with_kept(call.gradient(), dropped);
  const Tensor average = reduced(aten::kMean, self, dims, true);
  const Tensor centred = kernel(aten::kSub, {&self, &average});
  const Tensor scaled = kernel(aten::kMul, {&gradient});
  call.set(0, kernel(aten::kMul, {&scaled, &centred}));
}

/// std_backward: var_backward of grad / (2 * result), zero where the result is zero.
void std_backward(BackwardCall& call) {  // saved: self, result
  const auto& [dropped, dims] = call.payload<VariancePayload>();
  const Tensor& self = call.saved(0);
  Tensor twice = kernel(aten::kMul, {&call.saved(1)});
  Tensor quotient = kernel(aten::kDiv, {&call.gradient(), &twice});
  Tensor zero = pointwise(aten::kEq, {&call.saved(1)}, 1, DType::kBool);
  Tensor gradient = with_kept(quotient, dropped);
  drop(zero, twice);
  const Tensor average = reduced(aten::kMean, self, dims, true);
  const Tensor centred = kernel(aten::kSub, {&self, &average});
  const Tensor scaled = kernel(aten::kMul, {&gradient});
  call.set(0, kernel(aten::kMul, {&scaled, &centred}));
}

void sqrt_backward(BackwardCall& call) {  // grad / (2 * result)
  Tensor twice = kernel(aten::kMul, {&call.saved(0)});
  call.set(0, kernel(aten::kDiv, {&call.gradient(), &twice}));
}

Tensor spread(const Tensor& x, unsigned dims, bool keep, bool root) {
  Tape& tape = x.tape();
  const Tensor* inputs[] = {&x};
  Node* node = tape.autograd.record(root ? aten::kStd : aten::kVar, root ? std_backward : var_backward, inputs, 1);
  if (node != nullptr) {
    node->payload.set(VariancePayload{.dropped = keep ? 0 : dims, .reduced = dims});
    tape.autograd.save(*node, x);
  }
  Tensor result = reduced(aten::kVar, x, dims, keep);
  tape.autograd.set_history(node, result);
  if (node != nullptr && root) tape.autograd.save(*node, result);
  return result;
}

}  // namespace

Tensor variance(const Tensor& x, unsigned reduced, bool keep_dims) { return spread(x, reduced, keep_dims, false); }
Tensor standard_deviation(const Tensor& x, unsigned reduced, bool keep_dims) {
  return spread(x, reduced, keep_dims, true);
}

Tensor square_root(Arg x) {
  const OperatorCall call(x);
  Tape& tape = x->tape();
  const Tensor* inputs[] = {&*x};
  Node* node = tape.autograd.record(aten::kSqrt, sqrt_backward, inputs, 1);
  Tensor result = kernel(aten::kSqrt, {&*x});
  tape.autograd.set_history(node, result);
  if (node != nullptr) tape.autograd.save(*node, result);
  return result;
}

}  // namespace memcalc
